"""A test that takes its worker down, or holds it for ever, is one failure, and the run comes to its end."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.workers import RestOfFiles, import_share

ROOT = Path(__file__).parent.parent

QUICK = "def test_quick(): pass\ndef test_too(): pass\n"
DIES = """
import os, signal

def test_before(): pass
def test_dies(): {how}
"""
KILLED = "os.path.exists(fuse := 'fuse') or (open(fuse, 'w'), os.kill(os.getpid(), signal.SIGKILL))"
LONG = """
import time, pytest

@pytest.mark.timeout(60)
def test_takes_its_time(): time.sleep(3)
"""
HANGS = """
import ctypes, os

def test_before(): pass

def test_hangs():
    if not os.path.exists("fuse"):
        open("fuse", "w")
        lock, mutex = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
        mutex(lock), mutex(lock)
"""


def run(folder: Path, plugin: str = "tests.workers", **files: str) -> subprocess.CompletedProcess[str]:
    """A run of these files by two workers. Those that run on their own are done first."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 1\n")
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-rf"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_a_run_goes_on_when_a_worker_dies(tmp_path: Path) -> None:
    files = {f"{letter}": QUICK for letter in "abcdef"} | {"g": DIES.format(how=KILLED)}
    done = run(tmp_path, **files, **{letter: QUICK for letter in "hij"})
    assert "ended with -9" in done.stdout, done
    assert "ran test_g.py::test_dies" in done.stdout
    assert "1 failed" in done.stdout, done.stdout
    assert done.returncode == 1


def test_a_test_that_no_signal_ends_is_ended_with_its_process(tmp_path: Path) -> None:
    settings = "import tests.workers\nfrom tests.workers import *\ntests.workers.GIVEN_UP_AFTER_S = 0.5\n"
    (tmp_path / "impatient.py").write_text(settings)
    done = run(tmp_path, "impatient", a=QUICK, b=HANGS, c=LONG)
    assert "test_b.py::test_hangs can't be ended" in done.stderr, done
    assert "in test_hangs" in done.stderr
    assert "test_takes_its_time" not in done.stderr, "it has a limit of its own"
    assert "1 failed" in done.stdout, done.stdout


class Worker:
    """What the distribution knows of a worker; keeps what it was sent."""

    def __init__(self) -> None:
        self.shutting_down = False
        self.gateway = SimpleNamespace(id="a worker")
        self.sent: list[list[int]] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent.append(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


def died_once(distribution: type[LoadFileScheduling]) -> list[Worker]:
    """Two workers and twelve files; the second worker dies in the first test of its fifth file, and another
    one comes."""
    tests = [f"test_{file}.py::test_{n}" for file in "abcdefghijkl" for n in range(2)]
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(getvalue=lambda name: ["2*popen"], option=option)
    workers, sched = [Worker() for _ in range(3)], distribution(config, Producer("files", enabled=False))
    for worker in workers[:2]:
        sched.add_node(worker)
        sched.add_node_collection(worker, tests)
    sched.schedule()
    for file in range(4):
        for index in workers[1].sent[file]:
            sched.mark_test_complete(workers[1], index)
    assert sched.remove_node(workers[1]) == tests[workers[1].sent[4][0]]
    sched.add_node(workers[2])
    sched.add_node_collection(workers[2], tests)
    sched.schedule()
    living, done = [workers[0], workers[2]], set()
    for _ in tests:
        for worker in living:
            waiting = [index for sent in worker.sent for index in sent if (worker, index) not in done]
            if len(waiting) > 1 or (waiting and worker.shutting_down):  # it knows the one after it
                done.add((worker, waiting[0]))
                sched.mark_test_complete(worker, waiting[0])
    if sched.has_pending:
        raise Endless
    return living


class Endless(Exception):
    """Tests are left, and no worker will ever run them."""


def test_each_test_is_run_by_those_that_live() -> None:
    old, new = died_once(RestOfFiles)
    sent = [index for worker in (old, new) for portion in worker.sent for index in portion]
    assert len(sent) == len(set(sent)) == 24 - 8, "all but those that the dead one had done"


def test_without_it_the_run_would_never_end() -> None:
    """The mutant: xdist's own. Once it comes to an end, `RestOfFiles` can go."""
    with pytest.raises(Endless):
        died_once(LoadFileScheduling)


def test_each_module_is_imported_by_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong in one keeps no other from being imported."""
    folder = tmp_path / "shared_tests"
    (folder / "unit").mkdir(parents=True)
    skips = "import pytest\npytest.skip('not here', allow_module_level=True)\n"
    for name, text in {"a": "", "b": "1 / 0\n", "c": skips, "unit/test_d": "", "unit/test_e": ""}.items():
        (folder / f"{name if '/' in name else f'test_{name}'}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    shares = [import_share(folder, number, 2) for number in range(2)]
    wanted = ["test_a", "test_b", "test_c", "unit.test_d", "unit.test_e"]
    assert sorted(shares[0] + shares[1]) == [f"shared_tests.{name}" for name in wanted]
    imported = {f"shared_tests.{name}" for name in wanted if name[-1] not in "bc"}
    assert imported <= sys.modules.keys()
    assert not {"shared_tests.test_b", "shared_tests.test_c"} & sys.modules.keys()


def test_a_module_that_was_imported_is_the_one_that_is_collected() -> None:
    assert vars(importlib.import_module("tests.test_workers")) is globals()
