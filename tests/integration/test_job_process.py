"""What a test leaves behind, and what it leaves alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.job_process import JobProcess

NEXT_NUMBER = Path("/proc/sys/kernel/ns_last_pid")
WAITS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def waiting() -> subprocess.Popen[bytes]:
    return subprocess.Popen(WAITS, stdin=subprocess.PIPE)


def job_with_slot(folder: Path, pid: int) -> JobProcess:
    """A job that says that this process is a slot of its, and waits."""
    event = json.dumps({"event": "slots_started", "attempt": 1, "slots": [{"pid": pid}]})
    program = [sys.executable, "-c", f"import sys; print({event!r}, flush=True); sys.stdin.read()"]

    def start(stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True
        )

    job = JobProcess(start, folder / "errors")
    job.wait_event("slots_started")
    return job


def test_what_a_job_started_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    with waiting() as slot:
        job = job_with_slot(tmp_path, slot.pid)
        job.close()
        assert slot.wait(60) == -9
        assert not job.is_running


def test_what_has_the_number_of_an_ended_slot_is_left_alone(tmp_path: Path) -> None:
    """Numbers of processes are used again after minutes, and the threads of the tests' own take some too: a
    worker of the tests died of that."""
    with waiting() as slot:
        job = job_with_slot(tmp_path, slot.pid)
        slot.kill()
    for _ in range(100):
        try:
            NEXT_NUMBER.write_text(str(slot.pid - 1))
        except OSError as error:
            job.close()
            pytest.skip(f"the next process can't be given a number here: {error}")
        with waiting() as other:
            if other.pid == slot.pid:
                job.close()
                with pytest.raises(subprocess.TimeoutExpired):
                    other.wait(1)
                other.communicate()
                assert other.returncode == 0
                return
            other.kill()
    pytest.fail("the number was never free")
