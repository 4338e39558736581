"""The disk of the checkpoints gets full while a job runs: it goes on, says so, and leaves nothing behind
once it has started again."""

from __future__ import annotations

import errno
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.store_url import open_store

pytestmark = pytest.mark.timeout(600)
JOB = Path(__file__).parent / "jobs" / "remembered.py"
BLOCK = bytes(4096)
DEADLINE_S = 120


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    done = subprocess.run(mounted, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this user can't mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, job: Any) -> Path:
    """A file that takes all that is left, and what older checkpoints leave, until one has failed."""
    filler, deadline_s = disk / "filler", time.monotonic() + DEADLINE_S
    with filler.open("wb", buffering=0) as file:
        while not job.named("checkpoint_failed"):
            assert time.monotonic() < deadline_s, job.story()
            while has_room(file):
                pass
    return filler


def has_room(file: Any) -> bool:
    try:
        return bool(file.write(BLOCK))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_job_goes_on_when_there_is_room_again(backend: str, disk: Path, start_job: Any) -> None:
    folder = disk / "checkpoints"
    options = ["--state-backend", backend, "--retained", "2"]
    job = start_job(folder, program=JOB, options=options)
    job.wait_event("checkpoint_completed", lambda e: e["checkpoint_id"] >= 3)
    filler = fill(disk, job)
    failed = job.wait_event("checkpoint_failed")
    assert "No space left on device" in failed["reason"], failed
    filler.unlink()
    job.wait_event("checkpoint_completed", lambda e: e["checkpoint_id"] > failed["checkpoint_id"] + 2)
    job.send(signal.SIGTERM)
    assert job.wait(120) == 0
    assert set(needed(folder)) <= there(folder)
    again = start_job(folder, program=JOB, options=options)
    again.wait_event("checkpoint_completed")
    again.send(signal.SIGTERM)
    assert again.wait(120) == 0
    assert there(folder) == needed(folder), "what slots had written of checkpoints that were given up is gone"


def needed(folder: Path) -> set[str]:
    found = {path for _, m in read_log(open_store(str(folder))).completed() for path in m.paths()}
    assert found
    return found


def there(folder: Path) -> set[str]:
    return {status.path for status in open_store(str(folder)).list("state")}
