"""A job that is killed again and again, and each time started again."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

from tests.integration.job_process import Event, JobProcess


def run_killed(
    start: Callable[[], JobProcess],
    kills: int,
    pick: random.Random,
    checkpoints: tuple[int, int] = (1, 3),
    end_s: float = 480,
) -> list[Event]:
    """Let `start()` start the job and kill all of it so often, each time after some checkpoints, from the
    lower to the upper number; then let it end. Returns what all its processes have told."""
    told: list[Event] = []
    for _ in range(kills):
        job = start()
        wait_for_checkpoints(job, 0, pick.randint(*checkpoints))
        job.kill_group()
        job.wait()
        told += job.events
    job = start()
    assert job.wait(end_s) == 0, job.story()
    return told + job.events


def run_with_slots_killed(
    start: Callable[[int], JobProcess], kills: int, pick: random.Random, slots_of_three: int
) -> None:
    """Let `start(parallelism)` start the job on Spark and kill so often one slot, `slots_of_three` times in
    three, or else all of it, which then goes on at another parallelism; then let it end."""
    job = start(2)
    for number in range(kills):
        since = wait_for_checkpoints(job, job.mark, pick.randint(1, 3))
        if number % 3 < slots_of_three:
            os.kill(pick.choice(job.slots()), signal.SIGKILL)
            job.wait_event("restarted", after=since)
        else:
            job.kill_group()
            job.wait()
            job = start(3 - number % 2)
            job.wait_event("attempt_started")
    assert job.wait(480) == 0, job.story()


def wait_for_checkpoints(job: JobProcess, since: int, number: int) -> int:
    """The number of the event behind the last of so many that complete from event `since` on."""
    for _ in range(number):
        since = job.events.index(job.wait_event("checkpoint_completed", after=since)) + 1
    return since
