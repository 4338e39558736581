"""Bounded input: the end, running again, and a kill between the last checkpoint and its commit."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000


def test_a_bounded_job_ends_and_has_nothing_to_do_when_run_again(
    start_job: Any, feed: Any, judge: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    data = feed(servers, source, 4)
    data.close(data.load(100_000, START_MS))
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output, "--until", "latest")
    job = start_job(tmp_path / "ck", *arguments)
    assert job.wait(240) == 0, job.story()
    finished = job.named("job_finished")[0]
    assert (finished["outcome"], finished["late_records"]) == ("finished", 0)
    verdict = judge(servers).verdict(judge(servers).expected(source), output)
    assert verdict.is_exact, verdict
    again = start_job(tmp_path / "ck", *arguments)
    assert again.wait(120) == 0, again.story()
    assert "nothing is left to do" in again.named("job_finished")[0]["reason"]
    assert judge(servers).verdict(judge(servers).expected(source), output) == verdict


def test_killed_between_the_last_checkpoint_and_its_commit(
    start_job: Any, feed: Any, judge: Any, engine: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """All output is in one checkpoint, the last; the records of its commit are held back; kill; run again."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    data = feed(servers, source, 4)
    data.close(data.load(50_000, START_MS))
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output, "--until", "latest")
    with engine.holding_commits(servers) as proxy:
        job = start_job(tmp_path / "ck", *arguments, "--sink-servers", proxy.address, interval="1 h")
        engine.wait_for(lambda: engine.holds_promise(proxy, tmp_path / "ck"), job)
        job.kill_group()
        job.wait()
    assert judge(servers).output(output).is_empty()
    again = start_job(tmp_path / "ck", *arguments, interval="1 h")
    assert again.wait(240) == 0, again.story()
    assert again.named("job_finished")[0]["outcome"] == "finished"
    verdict = judge(servers).verdict(judge(servers).expected(source), output)
    assert verdict.is_exact, verdict


def test_until_on_a_folder_that_was_started_without_it_warns(
    start_job: Any, feed: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """Where reading ends is fixed at the very first start: what is asked for later changes nothing."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    feed(servers, source, 2).load(1_000, START_MS)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    job = start_job(tmp_path / "ck", *arguments, interval="50 ms")
    job.wait_event("checkpoint_completed")
    job.send(signal.SIGTERM)
    assert job.wait(120) == 0, job.story()
    assert not job.named("warning")
    again = start_job(tmp_path / "ck", *arguments, "--until", "latest", interval="50 ms")
    warning = again.wait_event("warning")
    assert f"until= has no effect on {source}-0 and 1 more" in warning["reason"]
    again.wait_event("checkpoint_completed")
    again.send(signal.SIGTERM)
    assert again.wait(120) == 0, again.story()
    assert len(again.named("warning")) == 1
