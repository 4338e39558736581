"""What fails from outside: the broker, the user's function, the checkpoint folder."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from onceflow.connectors.kafka.testing.fault_proxy import Api, Course, FaultProxy, Request
from onceflow.runtime.checkpoint.listing import CheckpointStatus, list_checkpoints
from onceflow.runtime.checkpoint.store_url import open_store
from tests.pace import slowness

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000


def test_a_broker_that_is_away_is_waited_for_and_said(
    start_job: Any, feed: Any, judge: Any, follow: Any, own_broker: Any, tmp_path: Path
) -> None:
    """Killed while records flow; the live progress says what is waited for; back again: exact."""
    kafka = own_broker()
    servers = kafka.bootstrap_servers
    kafka.create_topic("in", 4)
    kafka.create_topic("out", 2)
    data, rows = feed(servers, "in", 4), follow(servers, "out")
    job = start_job(tmp_path / "ck", "--bootstrap-servers", servers, "--input", "in", "--output", "out")
    data.run(2_000)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    since = job.mark
    kafka.kill()
    said = job.wait_event("progress", lambda e: "is away" in str(e["waiting"]), after=since, timeout=120)
    assert servers in str(said["waiting"])
    kafka.start()
    data.close()
    expected = judge(servers).expected("in")
    rows.wait_rows(len(expected), job)
    job.wait_event("progress", lambda e: not e["waiting"], after=job.mark, timeout=240)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, "out")
    assert verdict.is_exact, verdict
    assert not job.named("restarted"), "waiting needs no restart"


@pytest.mark.parametrize(
    "steps",
    [
        [Api.END_TXN],
        pytest.param([Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN], marks=pytest.mark.soak),
    ],
    ids=["the last step", "all steps"],
)
def test_soon_after_a_broker_that_was_killed_inside_a_commit_is_back_there_is_new_output(
    steps: list[Api], start_job: Any, feed: Any, judge: Any, follow: Any, own_broker: Any, tmp_path: Path
) -> None:
    """Killed when a step of the commit reaches it. One of librdkafka's calls then never returns: it was
    waited for until it had timed out, which took ten seconds more."""
    kafka = own_broker()
    servers = kafka.bootstrap_servers
    kafka.create_topic("in", 2)
    kafka.create_topic("out", 2)
    arguments = ("--bootstrap-servers", servers, "--input", "in", "--output", "out")
    with FaultProxy(servers) as proxy:
        data, rows = feed(servers, "in", 2), follow(servers, "out")
        job = start_job(tmp_path / "ck", *arguments, "--sink-servers", proxy.address, parallelism=1)
        data.run(2_000)
        for step in steps:
            rows.first_after(time.monotonic(), job)
            is_dead = threading.Event()
            proxy.on_request = _killing(kafka, step, is_dead)
            assert is_dead.wait(120), job.story()
            kafka.start()
            back = time.monotonic()
            assert rows.first_after(back, job) - back < 6 * slowness(), f"{step!r}\n{job.story()}"
        data.close()
        expected = judge(servers).expected("in")
        rows.wait_rows(len(expected), job)
        job.send(signal.SIGTERM)
        assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, "out")
    assert verdict.is_exact, verdict


def _killing(kafka: Any, step: Api, is_dead: threading.Event) -> Callable[[Request], Course]:
    """Kills the broker when the next request for this step comes, before it gets it."""
    once = threading.Lock()

    def on_request(request: Request) -> Course:
        if request.api == step and once.acquire(blocking=False):
            kafka.kill()
            is_dead.set()
        return Course.PASS

    return on_request


def test_a_broker_that_stays_away_fails_the_job_after_the_stated_time_and_a_stop_is_quick(
    start_job: Any, feed: Any, judge: Any, own_broker: Any, tmp_path: Path
) -> None:
    kafka = own_broker()
    servers = kafka.bootstrap_servers
    kafka.create_topic("in", 2)
    kafka.create_topic("out", 2)
    data = feed(servers, "in", 2)
    arguments = ("--bootstrap-servers", servers, "--input", "in", "--output", "out")
    reached_ms = data.load(20_000, START_MS)
    job = start_job(tmp_path / "ck", *arguments, "--give-up", "2 s", options=["--restart", "none"])
    patient = start_job(tmp_path / "patient", *arguments)
    for each in (job, patient):
        each.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    kafka.pause()
    assert job.wait(40) == 1, job.story()
    errors = job.errors()
    assert "Traceback" not in errors
    assert servers in errors and "2 s" in errors  # noqa: PT018
    last = job.named("job_finished")[0]["checkpoint_id"]
    reported = job.named("checkpoint_completed")[-1]["checkpoint_id"]
    # The event waits for the slots' commits, which a broker that is away holds up: the last that is
    # durable, which the next run goes on from and commits, may be the one after it.
    assert last in (reported, reported + 1)
    assert f"last completed checkpoint: {last} in {tmp_path / 'ck'}" in errors
    kept = [c for c in list_checkpoints(open_store(str(tmp_path / "ck"))) if c.checkpoint_id == last]
    assert [c.status for c in kept] == [CheckpointStatus.COMPLETED], "what is named can be gone on from"
    patient.send(signal.SIGTERM)
    assert patient.wait(12 * slowness()) == 0, patient.story()
    kafka.resume()
    data.close(reached_ms)
    again = start_job(tmp_path / "ck", *arguments, options=["--restart", "none"])
    again.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    again.send(signal.SIGTERM)
    assert again.wait(240) == 0, again.story()


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("threads[2]", marks=pytest.mark.soak),
        pytest.param("local[2]", marks=pytest.mark.spark),
    ],
)
def test_a_user_function_that_always_raises_fails_the_job_with_the_record_and_the_line(
    host: str, start_job: Any, feed: Any, broker: Any, new_topic: Any, engine: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    (tmp_path / "fuses").mkdir()
    (tmp_path / "fuses" / "always").touch()
    data = feed(servers, source, 2)
    data.load(10_000, START_MS)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    arguments += ("--trouble", str(tmp_path / "fuses"))
    job = start_job(tmp_path / "ck", *arguments, master=host)
    completed = job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    data.send("trouble", 1, START_MS, 1)
    data.flush()
    assert job.wait(120) == 1, job.story()
    errors = job.errors()
    line = next(
        i
        for i, text in enumerate((engine.jobs / "totals.py").read_text().splitlines(), 1)
        if 'ValueError("no luck' in text
    )
    for part in ("'trouble'", f"{source}-1 at offset 5000", f"totals.py:{line}", "ValueError: no luck today"):
        assert part in errors, errors
    assert "Traceback" not in errors
    assert len(job.named("attempt_failed")) == 1, "the same failure a second time is the end"
    assert "failed for the same reason" in errors
    last = job.named("job_finished")[0]
    assert last["outcome"] == "failed"
    assert last["checkpoint_id"] >= completed["checkpoint_id"]
    assert f"last completed checkpoint: {last['checkpoint_id']} in {tmp_path / 'ck'}" in errors


def test_a_user_function_that_raises_for_a_while_costs_restarts_and_nothing_else(
    start_job: Any, feed: Any, judge: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    (tmp_path / "fuses").mkdir()
    for fuse in range(2):
        (tmp_path / "fuses" / str(fuse)).touch()
    data = feed(servers, source, 2)
    reached_ms = data.load(40_000, START_MS)
    data.send("trouble", 1, reached_ms, 1)
    data.close(reached_ms)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output, "--until", "latest")
    job = start_job(tmp_path / "ck", *arguments, "--trouble", str(tmp_path / "fuses"), interval="50 ms")
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(judge(servers).expected(source), output)
    assert verdict.is_exact, verdict
    assert len(job.named("attempt_failed")) == 2
    assert job.named("job_finished")[0]["restarts"] >= 1


@pytest.mark.parametrize("folder", [pytest.param("state", marks=pytest.mark.soak), "staged", "log"])
def test_a_checkpoint_that_can_not_be_written_is_said_and_its_output_is_in_a_later_one(
    folder: str,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """The folder is replaced by a file for a while: no state, no staged output, or no manifest."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    job = start_job(tmp_path / "ck", *arguments, interval="700 ms")
    data.run(3_000)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    there, away = tmp_path / "ck" / folder, tmp_path / "ck" / "away"
    since = job.mark
    there.rename(away)
    there.touch()
    failed = job.wait_event("checkpoint_failed", after=since)
    second = job.wait_event("checkpoint_failed", after=job.events.index(failed) + 1)
    there.unlink()
    away.rename(there)
    assert str(there) in failed["reason"], failed
    assert "File exists" in failed["reason"], failed
    completed = job.wait_event("checkpoint_completed", after=job.events.index(second))
    job.wait_event("checkpoint_completed", after=job.events.index(completed) + 1)
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
    assert not job.named("restarted")


@pytest.mark.spark
def test_a_jvm_that_is_killed_fails_the_job_in_one_sentence_and_the_next_run_is_exact(
    start_job: Any, feed: Any, judge: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """Nothing in this process could start another attempt; the same command can."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output, "--until", "latest")
    data = feed(servers, source, 2)
    data.close(data.load(300_000, START_MS))
    job = start_job(tmp_path / "ck", *arguments, master="local[2]")
    job.wait_event("first_record")
    (jvm,) = [p for p in psutil.Process(job.pid).children() if "java" in p.name()]
    jvm.kill()
    assert job.wait(240) == 1, job.story()
    errors = job.errors()
    assert "Spark on local[2] has ended under the job" in errors
    assert "last completed checkpoint" in errors
    assert "Traceback" not in errors
    assert len(job.named("attempt_failed")) <= 1
    again = start_job(tmp_path / "ck", *arguments, master="local[2]")
    assert again.wait(240) == 0, again.story()
    verdict = judge(servers).verdict(judge(servers).expected(source), output)
    assert verdict.is_exact, verdict
