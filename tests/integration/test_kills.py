"""Kills at random moments of a run: slots, the driver's group, the broker; the output stays exact."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.spark
@pytest.mark.parametrize("seed", [1])
def test_slots_driver_and_broker_killed_in_one_run(
    seed: int, start_job: Any, feed: Any, judge: Any, follow: Any, own_broker: Any, tmp_path: Path
) -> None:
    """Three slots, the driver's group, the broker, two more slots, each killed while a feed goes on.

    The moments are drawn from the seed: so many checkpoints after the last restart, then part of one.
    """
    pick = random.Random(seed)
    kafka = own_broker()
    servers = kafka.bootstrap_servers
    kafka.create_topic("in", 4)
    kafka.create_topic("out", 4)
    source = feed(servers, "in", 4, seed)
    rows = follow(servers, "out")
    arguments = ("--bootstrap-servers", servers, "--input", "in", "--output", "out")

    def start() -> Any:
        return start_job(tmp_path / "ck", *arguments, master="local[2]", interval="200 ms")

    def wait_for_a_moment(job: Any) -> None:
        since = job.mark
        for _ in range(pick.randrange(1, 4)):
            done = job.wait_event("checkpoint_completed", after=since)
            since = job.events.index(done) + 1
        rows._over.wait(pick.uniform(0, 0.3))  # anywhere within the next checkpoint

    job = start()
    source.run(15_000)
    first_output: list[float] = []
    for victim in ("slot", "slot", "slot", "driver", "slot", "broker", "slot"):
        wait_for_a_moment(job)
        since = job.mark
        if victim == "slot":
            os.kill(pick.choice(job.slots()), signal.SIGKILL)
            killed = time.monotonic()
            again = job.wait_event("attempt_started", after=since)
            first_output.append(rows.first_after(again["at"], job) - killed)
            job.wait_event("restarted", after=since)
        elif victim == "driver":
            job.kill_group()
            job.wait()
            job = start()
            job.wait_event("attempt_started")
        else:
            kafka.kill()
            kafka.start()
    source.close()
    expected = judge(servers).expected("in")
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(15) == 0, job.story()
    verdict = judge(servers).verdict(expected, "out")
    print(f"7 kills, {verdict}, first output after a slot's end: {[round(s, 2) for s in first_output]} s")
    assert verdict.is_exact, verdict
    assert max(first_output) < 5, first_output
