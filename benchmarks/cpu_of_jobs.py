"""The CPU that a job takes from its start to its end, with all its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.environments import reason_in

LIMIT_S = 240.0


class Failed(Exception):
    """A run without a figure: says why."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a job has used, and what it has said."""

    cpu_s: float
    wall_s: float
    text: str


def ended(command: Sequence[str]) -> Ended:
    """Run a job to its end. Raises Failed where it does not end well, or not within LIMIT_S."""
    begin_s = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        job = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        limit = threading.Timer(LIMIT_S, job.kill)
        limit.start()
        _, status, used = os.wait4(job.pid, 0)
        limit.cancel()
        wall_s = time.monotonic() - begin_s
        job.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if job.returncode == -signal.SIGKILL:
        raise Failed(f"not done within {LIMIT_S} s")
    if job.returncode != 0:
        raise Failed(reason_in(text) or f"it ended with {job.returncode}: {text[-500:]}")
    return Ended(used.ru_utime + used.ru_stime, wall_s, text)
