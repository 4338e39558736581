"""A job on Spark is rescaled again and again, and each time a slot is killed, one that runs or one that waits
for the next attempt, or the driver with all of them: each row is there once."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskRescale

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
ROUNDS = 8


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.soak, pytest.mark.timeout(900)]) for n in range(3)]
)
def test_each_row_is_there_once_whoever_is_killed_while_the_job_is_rescaled(
    seed: int,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    pick = random.Random(seed)
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4, seed), follow(servers, output)
    data.run(4_000)

    def start() -> Any:
        return start_job(tmp_path / "ck", *arguments, master="local[8]", parallelism=2, interval="200 ms")

    job, killed = start(), Counter[str]()
    job.wait_event("checkpoint_completed")
    for _ in range(ROUNDS):
        since = job.mark
        ask(str(tmp_path / "ck"), AskRescale(slots=pick.randrange(1, 5)))
        rows.wait_some(pick.uniform(0, 1.2))
        running, all_slots, waiting = set(job.slots()), slots_of(job.pid), list[psutil.Process]()
        if pick.random() < 0.5:  # until one of the next attempt is there, which is soon over
            for _ in range(50):
                rows.wait_some(0.02)
                running, all_slots = set(job.slots()), slots_of(job.pid)
                waiting = [slot for slot in all_slots if slot.pid not in running]
                if waiting:
                    break
        if pick.random() < 0.25:
            job.kill_group()
            job.wait()
            killed["driver"] += 1
            job, since = start(), 0
        elif all_slots:
            victim = pick.choice(waiting or all_slots)
            killed["a slot that runs" if victim.pid in running else "a slot that waits"] += 1
            victim.kill()
        job.wait_event("checkpoint_completed", after=max(since, job.mark if since else 0))
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    print(f"seed {seed}: {dict(killed)}: {verdict}")
    assert verdict.is_exact, verdict


def slots_of(driver: int) -> list[psutil.Process]:
    """The processes in which slots run or wait: what Spark's daemon for Python has forked."""
    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            parent = process.parent()
            if parent is not None and "daemon" in " ".join(parent.cmdline()[:4]):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
