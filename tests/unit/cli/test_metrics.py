"""What a scrape over HTTP sees of a job, and that nothing is kept from the reporter behind."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onceflow.cli.metrics import LOOPBACK, Metrics
from onceflow.runtime.errors import OptionError
from onceflow.runtime.records import WATERMARK_MIN_MS
from onceflow.runtime.report import JobProgress

COUNTERS = {
    "records_in": 1_000,
    "records_out": 40,
    "late_records": 3,
    "dead_letters": 2,
    "failed_records": 1,
    "paused_splits": 4,
    "watermark_ms": 17_000,
    "max_event_time_ms": 19_000,
}


class Recording:
    """The reporter behind."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.progresses: list[JobProgress] = []
        self.is_closed = False

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        self.events.append((name, fields))

    def progress(self, progress: JobProgress) -> None:
        self.progresses.append(progress)

    def close(self) -> None:
        self.is_closed = True


class Seconds:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def behind() -> Recording:
    return Recording()


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


@pytest.fixture
def metrics(behind: Recording, clock: Seconds) -> Iterator[Metrics]:
    served = Metrics(behind, 0, monotonic_s=clock)
    yield served
    if not behind.is_closed:
        served.close()


def scrape(metrics: Metrics) -> dict[str, float]:
    """Every sample, by its name and labels as Prometheus writes them."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{metrics.port}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert {family.type for family in families} <= {"gauge"}
    return {
        sample.name + "".join(f"{{{k}={v}}}" for k, v in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def progress(**changes: Any) -> JobProgress:
    fields: dict[str, Any] = {
        "job": "totals",
        "phase": "running",
        "slots": 2,
        "restarts": 1,
        "last_checkpoint_id": 7,
        "last_checkpoint_ms": 120,
        "last_checkpoint_bytes": 4_096,
        "watermark_lag_ms": 2_000,
        "task_counters": {"purchases": COUNTERS},
    }
    return JobProgress(**{**fields, **changes})


def test_before_the_job_says_anything_a_scrape_is_empty(metrics: Metrics) -> None:
    assert scrape(metrics) == {}


def test_a_scrape_has_the_job_and_its_tasks_under_flinks_names(metrics: Metrics) -> None:
    metrics.event("checkpoint_completed", {"checkpoint_id": 7, "alignment_ms": 4})
    metrics.event("checkpoint_completed", {"checkpoint_id": 8, "alignment_ms": 5, "in_flight_bytes": 9})
    metrics.event("checkpoint_failed", {"checkpoint_id": 9, "reason": "no"})
    metrics.progress(progress())
    seen = scrape(metrics)
    job = "onceflow_jobmanager_job_{}{{job_name=totals}}"
    assert seen[job.format("numberOfCompletedCheckpoints")] == 2
    assert seen[job.format("numberOfFailedCheckpoints")] == 1
    assert seen[job.format("lastCheckpointDuration")] == 120
    assert seen[job.format("lastCheckpointSize")] == 4_096
    assert seen[job.format("lastCheckpointAlignmentTime")] == 5
    assert seen[job.format("lastCheckpointPersistedInFlightData")] == 9
    assert seen[job.format("numRestarts")] == 1
    assert seen[job.format("runningState")] == 1
    task = "onceflow_taskmanager_job_task_{}{{job_name=totals}}{{task_name=purchases}}"
    assert seen[task.format("numRecordsIn")] == 1_000
    assert seen[task.format("numRecordsOut")] == 40
    assert seen[task.format("numLateRecordsDropped")] == 3
    assert seen[task.format("numDeadLetterRecords")] == 2
    assert seen[task.format("pausedSplits")] == 4
    assert seen[task.format("currentInputWatermark")] == 17_000


def test_rates_are_of_the_time_between_two_reports(metrics: Metrics, clock: Seconds) -> None:
    metrics.progress(progress())
    clock.now = 2.0
    metrics.progress(progress(task_counters={"purchases": {**COUNTERS, "records_in": 5_000}}))
    rate = "onceflow_taskmanager_job_task_{}{{job_name=totals}}{{task_name=purchases}}"
    assert scrape(metrics)[rate.format("numRecordsInPerSecond")] == 2_000
    assert scrape(metrics)[rate.format("numRecordsOutPerSecond")] == 0


def test_counters_that_start_anew_with_an_attempt_make_no_negative_rate(
    metrics: Metrics, clock: Seconds
) -> None:
    metrics.progress(progress())
    clock.now = 1.0
    metrics.progress(progress(task_counters={"purchases": {**COUNTERS, "records_in": 10}}))
    name = "onceflow_taskmanager_job_task_numRecordsInPerSecond{job_name=totals}{task_name=purchases}"
    assert scrape(metrics)[name] == 0


def test_what_is_not_known_yet_is_left_out(metrics: Metrics) -> None:
    unknown = {**COUNTERS, "watermark_ms": WATERMARK_MIN_MS}
    metrics.progress(
        progress(last_checkpoint_id=None, last_checkpoint_ms=None, task_counters={"purchases": unknown})
    )
    names = " ".join(scrape(metrics))
    assert "lastCheckpointDuration" not in names
    assert "currentInputWatermark" not in names


def test_everything_is_passed_on(metrics: Metrics, behind: Recording) -> None:
    now = progress()
    metrics.event("restarted", {"attempt": 2})
    metrics.progress(now)
    metrics.close()
    assert behind.events == [
        ("metrics_started", {"host": LOOPBACK, "port": metrics.port}),
        ("restarted", {"attempt": 2}),
    ]
    assert behind.progresses == [now]
    assert behind.is_closed


def test_after_close_nobody_listens(metrics: Metrics) -> None:
    metrics.close()
    with pytest.raises(urllib.error.URLError):
        scrape(metrics)


def test_a_port_in_use_is_refused_by_name(behind: Recording) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=rf"--metrics-port {port}: can't listen on 127.0.0.1"):
            Metrics(behind, port)
    assert behind.events == []


def test_a_port_that_is_none_is_refused_by_name(behind: Recording) -> None:
    with pytest.raises(OptionError, match="--metrics-port 70000"):
        Metrics(behind, 70_000)
