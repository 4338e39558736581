"""A job on Spark that writes files, its slots and its driver killed again and again, and started again at
another parallelism."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

END_S = 480.0


def run_with_kills(
    program: Path,
    arguments: tuple[str, ...],
    kills: int,
    start_job: Any,
    folder: Path,
    slots_of_three: int,
    checkpoints_max: int,
) -> None:
    """The job, which is given the folder of its output first, to its end. Each kill comes after a checkpoint
    or a few; `slots_of_three` of three take a slot, the others the driver and all slots."""
    pick = random.Random(kills)

    def start(parallelism: int) -> Any:
        settings = {"program": program, "interval": "150 ms", "parallelism": parallelism}
        given = (str(folder / "out"), *arguments)
        return start_job(folder / "ck", *given, master=f"local[{parallelism}]", **settings)

    job = start(2)
    for number in range(kills):
        since = job.mark
        for _ in range(pick.randint(1, checkpoints_max)):
            done = job.wait_event("checkpoint_completed", after=since)
            since = job.events.index(done) + 1
        if number % 3 < slots_of_three:
            os.kill(pick.choice(job.slots()), signal.SIGKILL)
            job.wait_event("restarted", after=since)
        else:
            job.kill_group()
            job.wait()
            job = start(3 - number % 2)
            job.wait_event("attempt_started")
    assert job.wait(END_S) == 0, job.story()


def check_rows(folder: Path, columns: tuple[str, ...], expected: Counter[tuple[int, ...]]) -> None:
    """The rows that the job has written, by these columns, are just these."""
    found: Counter[tuple[int, ...]] = Counter()
    for path in (folder / "out").glob("out-*.jsonl"):
        rows = map(json.loads, path.read_text().splitlines())
        found.update(tuple(row[name] for name in columns) for row in rows)
    assert found == expected, (len(expected - found), len(found - expected))
