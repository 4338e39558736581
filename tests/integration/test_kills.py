"""Kills at random moments of a run: slots, the driver's group, the broker; the output stays exact."""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kafka


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 8))])
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
        rows.wait_some(pick.uniform(0, 0.3))  # anywhere within the next checkpoint

    source.run(15_000 if seed > 1 else 5_000)  # the soak's have the load
    began = time.monotonic()
    job = start()
    from_nothing = rows.first_after(began, job) - began
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
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, "out")
    print(f"7 kills, {verdict}, first output after a slot's end: {[round(s, 2) for s in first_output]} s")
    assert verdict.is_exact, verdict
    assert statistics.median(first_output) < from_nothing, "a restart of slots is shorter than a whole start"


def _killed_while_it_starts(job: Any, start: Callable[[], Any], pick: random.Random) -> Any:
    """Killed, and its next run as well, at one of the steps of its start; the one after that."""
    job.kill_group()
    job.wait()
    again = start()
    again.wait_event(pick.choice(["job_started", "attempt_started", "slots_started", "first_record"]))
    again.kill_group()
    again.wait()
    return start()


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 20))])
def test_the_whole_process_killed_again_and_again(
    seed: int,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """Driver and slots in one process, so a kill takes all at once, in whatever they were doing."""
    pick = random.Random(seed)
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4, seed), follow(servers, output)
    data.run(5_000)
    for _ in range(3):
        job = start_job(tmp_path / "ck", *arguments, interval="50 ms")
        since = 0
        for _ in range(pick.randrange(1, 12)):
            since = job.events.index(job.wait_event("checkpoint_completed", after=since)) + 1
        job = _killed_while_it_starts(
            job, lambda: start_job(tmp_path / "ck", *arguments, interval="50 ms"), pick
        )
        rows.wait_some(pick.uniform(0, 0.1))
        job.kill_group()
        job.wait()
    job = start_job(tmp_path / "ck", *arguments, interval="50 ms")
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


def test_nothing_is_visible_of_a_checkpoint_whose_manifest_could_not_be_written(
    start_job: Any, feed: Any, judge: Any, follow: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """The log can't be written for a while; then all is killed and restored from before that."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    data.run(3_000)
    job = start_job(tmp_path / "ck", *arguments, interval="700 ms")
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    log, away = tmp_path / "ck" / "log", tmp_path / "ck" / "away"
    since = job.mark
    log.rename(away)
    log.touch()
    failed = job.wait_event("checkpoint_failed", after=since)
    job.wait_event("checkpoint_failed", after=job.events.index(failed) + 1)
    job.kill_group()
    job.wait()
    log.unlink()
    away.rename(log)
    again = start_job(tmp_path / "ck", *arguments)
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), again)
    again.send(signal.SIGTERM)
    assert again.wait(240) == 0, again.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
