"""The comparison and real processes: their CPU is counted, and none outlives its run."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from benchmarks.compare import Comparison, parse
from benchmarks.engine_run import running
from benchmarks.environments import Unavailable
from benchmarks.peers import onceflow
from benchmarks.peers.peer import MAIN, Assignment, Launch, Peer, Say
from benchmarks.sampler import CpuSampler
from benchmarks.secured import PASSWORD, USER, client_settings, java_settings

DEADLINE_S = 240
ORPHAN = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""
BUSY_CHILD = """
import subprocess, sys
work = "from time import *\\nwhile process_time() < 1.0: pass\\nprint(process_time(), flush=True)\\ninput()"
subprocess.run([sys.executable, "-c", work])
"""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A process whose child uses one second of CPU and then waits."""
    command = [sys.executable, "-c", BUSY_CHILD]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.communicate("\n", timeout=DEADLINE_S)


def test_the_cpu_of_descendants_counts(busy: subprocess.Popen[str]) -> None:
    sampler = CpuSampler(busy.pid)
    started_s = time.time()
    assert busy.stdout is not None
    used_s = float(busy.stdout.readline())
    seen_s = time.time()
    wait_until(lambda: bool(sampler.samples) and sampler.samples[-1][0] > seen_s + 0.2)
    sampler.close()
    assert len(sampler.seen) == 2
    assert used_s - 0.5 < sampler.cpu_between(started_s, time.time()) < used_s + 1.0
    assert sampler.rss_max > 0


def test_no_process_of_a_job_outlives_its_run() -> None:
    launch = Launch([sys.executable, "-c", ORPHAN])
    with contextlib.ExitStack() as stack:
        _, sampler = stack.enter_context(running(launch, subprocess.DEVNULL))
        wait_until(lambda: len(sampler.seen) == 2)
    left = [p for p in sampler.seen.values() if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    _, alive = psutil.wait_procs(left, timeout=DEADLINE_S)
    assert not alive


def test_a_peer_that_cannot_be_installed_is_noted_and_does_not_stop_the_others() -> None:
    def refused(say: Say) -> Callable[[Assignment], Launch]:
        raise Unavailable("javac is missing: install a JDK, not only a JRE")

    def ready(say: Say) -> Callable[[Assignment], Launch]:
        return lambda assignment: Launch(["true"])

    peers = [Peer(name, name, "", (MAIN,), how) for name, how in (("a", refused), ("b", ready))]
    comparison = Comparison(parse([]), Console(quiet=True), Path(), {})
    assert [peer.name for peer in comparison.prepare(peers)] == ["b"]
    assert comparison.unavailable == {"a": "javac is missing: install a JDK, not only a JRE"}


def test_on_a_secured_listener_only_those_run_whose_job_can_be_told_of_it(tmp_path: Path) -> None:
    security = client_settings(tmp_path, "SASL_SSL", "SCRAM-SHA-512")
    comparison = Comparison(parse(["--listener", "SASL_SSL"]), Console(quiet=True), tmp_path, security)
    ours, other = onceflow.peer("local[1]", 1), replace(onceflow.peer("local[1]", 1), name="other")
    other = replace(other, secured_workloads=())
    assert comparison.prepare([ours, other]) == [ours]
    assert comparison.unavailable == {"other": "its job can be told of no other listener than PLAINTEXT"}
    assignment = Assignment(MAIN, "127.0.0.1:1", "in", "out", 4, tmp_path, security)
    launch = ours.prepare(print)(assignment)
    assert json.loads((tmp_path / "client.json").read_text()) == security
    assert PASSWORD not in " ".join(map(str, launch.command))


def test_java_clients_are_told_of_the_same_listener(tmp_path: Path) -> None:
    assert java_settings(client_settings(tmp_path, "SASL_SSL", "SCRAM-SHA-512")) == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD}";',
    }
    assert java_settings(client_settings(tmp_path, "SSL")).keys() == {
        "security.protocol",
        "ssl.truststore.type",
        "ssl.truststore.location",
    }
