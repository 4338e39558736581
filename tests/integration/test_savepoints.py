"""Savepoints of jobs on Kafka: taken while they run and at their end, and what is started from them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from onceflow.runtime.checkpoint.savepoints.folder import savepoint_at

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("pairs", [1, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
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
        for begun in jobs:
            begun.send(signal.SIGTERM)
            assert begun.wait(120) == 0, begun.story()
            assert not begun.named("attempt_failed"), begun.story()
        if pair == 0:
            verdict = judge(servers).verdict(expected, first)
            assert verdict.is_exact, verdict
        verdict = judge(servers).verdict(expected, topics[1])
        assert (verdict.rows, verdict.doubled, verdict.wrong) == (len(expected) - before, 0, 0), verdict
