"""Savepoints of jobs on Kafka: taken while they run and at their end, and what is started from them."""

from __future__ import annotations

import json
import signal
import time
from functools import partial
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from onceflow.runtime.checkpoint.savepoints.folder import savepoint_at

pytestmark = pytest.mark.kafka

RECORDS = 4_000
"""The records of a job that is drained, over 400 ms of event time: their windows are open all along."""


@pytest.mark.parametrize(
    "pairs", [1, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(3_000)])]
)
def test_two_jobs_from_one_savepoint_fence_nobody_and_double_nothing(
    pairs: int,
    onceflow: Any,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """One goes on in the first job's output topic, the other one at the same time in another: both with the
    first job's name and uids."""
    servers, source, first = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    common = ("--bootstrap-servers", servers, "--input", source)
    data = feed(servers, source, 4)
    data.run(2_000)
    job = start_job(tmp_path / "first", *common, "--output", first)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    running = json.loads(onceflow("savepoint", str(tmp_path / "first"), "--json").stdout)
    assert running["is_pinned"]
    place = str(tmp_path / "savepoint")
    stopped = onceflow("stop", str(tmp_path / "first"), "--savepoint", "--target", place)
    assert (stopped.returncode, job.wait(240)) == (0, 0), stopped.stderr
    assert f"start from it with --from {place}" in stopped.stdout
    pinned = savepoint_at(running["path"]).read().manifest
    assert pinned.checkpoint_id == running["checkpoint_id"]
    assert all((tmp_path / "first" / path).exists() for path in pinned.paths())
    before = len(judge(servers).output(first))

    for pair in range(pairs):
        topics = [first if pair == 0 else new_topic("again", 4), new_topic("other", 4)]
        jobs = [
            start_job(tmp_path / f"{pair}-{n}", *common, "--output", topic, options=["--from", place])
            for n, topic in enumerate(topics)
        ]
        data.close()
        expected = judge(servers).expected(source)
        followers = [follow(servers, topic) for topic in topics]
        for topic, rows, begun in zip(topics, followers, jobs, strict=True):
            rows.wait_rows(len(expected) - (0 if topic == first else before), begun)
        for rows, begun in zip(followers, jobs, strict=True):
            rows.close()
            begun.send(signal.SIGTERM)
            assert begun.wait(120) == 0, begun.story()
            assert not begun.named("attempt_failed"), begun.story()
        if pair == 0:
            verdict = judge(servers).verdict(expected, first)
            assert verdict.is_exact, verdict
        for topic in topics[0 if pair else 1 :]:
            verdict = judge(servers).verdict(expected, topic)
            assert (verdict.rows, verdict.doubled, verdict.wrong) == (len(expected) - before, 0, 0), verdict


@pytest.mark.parametrize("kills", [2, pytest.param(25, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_a_job_that_is_killed_while_it_drains_gives_each_window_once(
    kills: int,
    onceflow: Any,
    start_job: Any,
    feed: Any,
    judge: Any,
    engine: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """Killed at any moment from the drain on, and drained again if it was not yet: all windows that were open
    are there, once and whole."""
    servers, moments = broker.bootstrap_servers, Random(7)
    for kill in range(kills):
        source, topic, folder = new_topic("in", 2), new_topic("out", 2), tmp_path / str(kill)
        data = feed(servers, source, 2, seed=kill)
        data.load(RECORDS, time.time_ns() // 1_000_000)
        arguments = ("--bootstrap-servers", servers, "--input", source, "--output", topic)
        job = start_job(folder, *arguments)
        engine.wait_for(partial(has_read_all, engine, folder), job)
        assert onceflow("stop", str(folder), "--drain", "--no-wait").returncode == 0
        Event().wait(moments.uniform(0, 0.4))
        job.kill_group()
        job.wait()
        again = start_job(folder, *arguments)
        engine.wait_for(partial(runs_or_has_ended, again), again)
        drained = onceflow("stop", str(folder), "--savepoint", "--drain")
        assert again.wait() == 0, again.story()
        if drained.returncode != 0:  # it was drained before the kill, and has ended by itself
            assert onceflow("savepoint", str(folder)).returncode == 0, drained.stderr
        verdict = judge(servers).verdict(judge(servers).expected(source), topic)
        assert verdict.is_exact, (kill, verdict)


def has_read_all(engine: Any, folder: Path) -> bool:
    """Whether the latest durable checkpoint of this folder has all records."""
    durable = engine.manifests(folder)
    splits = durable[-1]["splits"]["events"] if durable else []
    return sum(each["split"]["position"]["next_offset"] for each in splits) == RECORDS


def runs_or_has_ended(job: Any) -> bool:
    return bool(job.named("slots_started")) or not job.is_running
