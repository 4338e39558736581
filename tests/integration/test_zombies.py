"""Who was frozen or overtaken does no harm when it comes back."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.job_process import is_gone

pytestmark = pytest.mark.kafka


@pytest.mark.spark
@pytest.mark.slow
def test_a_frozen_slot_is_replaced_and_does_nothing_when_it_wakes_up(
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    engine: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """SIGSTOP; after --slot-timeout another attempt runs beside it (there are cores to spare); SIGCONT."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    job = start_job(tmp_path / "ck", *arguments, master="local[4]", options=["--slot-timeout", "3 s"])
    data.run(3_000)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    zombie = psutil.Process(job.slots()[1])
    zombie.suspend()
    failed = job.wait_event("attempt_failed", timeout=240)
    assert "slot 1" in failed["reason"] and "silent" in failed["reason"]  # noqa: PT018
    job.wait_event("slots_started", lambda e: e["attempt"] == 2)
    with contextlib.suppress(psutil.NoSuchProcess):  # Spark kills it some seconds later
        zombie.resume()
    engine.wait_for(lambda: is_gone(zombie.pid), job, timeout=240)
    done = job.wait_event("restarted")
    job.wait_event("checkpoint_completed", after=job.events.index(done))
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
    assert len(job.named("restarted")) == 1


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_second_driver_takes_over_and_the_first_ends_fenced(
    is_frozen: bool,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    onceflow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    first = start_job(tmp_path / "ck", *arguments)
    data.run(3_000)
    first.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    if is_frozen:
        first.kill_group(signal.SIGSTOP)  # wherever it is, a commit perhaps
    second = start_job(tmp_path / "ck", *arguments)
    second.wait_event("attempt_started")
    if is_frozen:
        second.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
        first.kill_group(signal.SIGCONT)
    assert first.wait(120) == 1, first.story()
    assert first.named("job_finished")[-1]["outcome"] == "fenced"
    assert "Traceback" not in first.errors()
    assert "another driver" in first.errors()
    status = onceflow("status", str(tmp_path / "ck"), "--json")
    assert status.returncode == 0, status.stderr
    second.wait_event("checkpoint_completed")
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), second)
    second.send(signal.SIGTERM)
    assert second.wait(240) == 0, second.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
