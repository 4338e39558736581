"""A job on the folder connectors is killed around its commits; the table has each row once all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.testing.connectors.folder_queue import add_message
from onceflow.runtime.testing.connectors.folder_source import add_file
from onceflow.runtime.testing.connectors.folder_table import FolderTable

PROGRAM = Path(__file__).parent / "jobs" / "folder_copy.py"
FILES, ROWS = 40, 25
DEADLINE_S = 480
KILLED_ITSELF = 137
Start = Callable[..., "subprocess.Popen[bytes]"]


def test_kills_around_the_commit(tmp_path: Path, start: Start) -> None:
    """Before a commit, after one that nobody heard of, at a question, and at any time; files keep coming."""
    (tmp_path / "in").mkdir()
    added = 0
    for crash in (("commit", "before", "2"), ("commit", "after", "1"), ("last_committed", "after", "3")):
        job = start("files", *crash)
        deadline = time.monotonic() + DEADLINE_S
        while job.poll() is None:
            assert time.monotonic() < deadline, f"no {crash}"
            if added < FILES // 2:
                added = add(tmp_path, added)
            time.sleep(0.01)
        assert job.returncode == KILLED_ITSELF
    for _ in range(2):
        job = start("files")
        added = add(tmp_path, added)
        wait(job, has_rows(tmp_path, added * ROWS // 2))
        job.kill()
        job.wait(DEADLINE_S)
    job = start("files")
    while added < FILES:
        added = add(tmp_path, added)
    wait(job, has_rows(tmp_path, FILES * ROWS))
    wait(job, lambda: latest(tmp_path).finished["files"]["below"] == FILES + 1)
    job.send_signal(signal.SIGTERM)
    assert job.wait(DEADLINE_S) == 0
    assert read(tmp_path) == list(range(FILES * ROWS)), "each row once"
    last = latest(tmp_path)
    assert last.finished == {"files": {"below": FILES + 1, "also": []}}
    assert list(last.splits["files"]) == [], "what is finished is in no checkpoint any more"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the program, where it ends itself if so asked; none is left behind."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(*crash: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path), *crash]))
        return started[-1]

    yield start_one
    for job in started:
        job.kill()
        job.wait(DEADLINE_S)


def test_a_queue_is_read_once_and_emptied(tmp_path: Path, start: Start) -> None:
    """Killed when a checkpoint is committed and nothing of it acknowledged; then at any time."""
    queue = tmp_path / "in"
    queue.mkdir()
    for n in range(ROWS):
        add_message(queue, f"message-{n:04d}", {"n": n})
    job = start("queue", "commit", "after", "1")
    assert job.wait(DEADLINE_S) == KILLED_ITSELF
    for n in range(ROWS, 3 * ROWS):
        add_message(queue, f"message-{n:04d}", {"n": n})
    job = start("queue")
    wait(job, has_rows(tmp_path, 2 * ROWS))
    job.kill()
    job.wait(DEADLINE_S)
    job = start("queue")
    for n in range(3 * ROWS, 4 * ROWS):
        add_message(queue, f"message-{n:04d}", {"n": n})
    wait(job, lambda: has_rows(tmp_path, 4 * ROWS)() and not list(queue.iterdir()))
    job.send_signal(signal.SIGTERM)
    assert job.wait(DEADLINE_S) == 0
    assert read(tmp_path) == list(range(4 * ROWS)), "each message once"


def add(folder: Path, added: int) -> int:
    """The next file."""
    first = added * ROWS
    add_file(folder / "in", added + 1, [{"n": n} for n in range(first, first + ROWS)])
    return added + 1


def read(folder: Path) -> list[int]:
    """What a careful reader sees."""
    table = FolderTable(str(folder / "table"))
    if not (folder / "table" / "schema.arrow").exists():
        return []
    return sorted(table.read().column("n").to_pylist())


def has_rows(folder: Path, count: int) -> Callable[[], bool]:
    return lambda: len(read(folder)) >= count


def latest(folder: Path) -> CheckpointManifest:
    return read_log(LocalStore(str(folder / "checkpoints"))).completed()[-1][1]


def wait(job: subprocess.Popen[bytes], is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_there():
        assert job.poll() is None, f"the job ended with {job.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.02)
