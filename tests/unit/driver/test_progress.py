"""From the slots' counters to what a person sees: sums, rates, the lowest watermark, what events said."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.contracts import WatermarkStrategy
from onceflow.runtime.control.messages import Progress
from onceflow.runtime.driver.progress import ProgressMeter, shown_phase
from onceflow.runtime.graph.job_graph import Chain, JobGraph, SourceNode
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS

WATERMARKS = WatermarkStrategy.bounded_out_of_orderness("2 s", "ts")


class AnySource:
    schema = pa.schema([])
    record_type = None
    is_bounded = False

    def open_enumerator(self, job: str, clock: Any) -> Any: ...

    def open_reader(self, context: Any) -> Any: ...


def meter(*sources: str, watermarks: WatermarkStrategy | None = WATERMARKS) -> ProgressMeter:
    nodes = [SourceNode(uid, AnySource(), watermarks, {}) for uid in sources or ("read",)]
    return ProgressMeter(JobGraph("job", [Chain(n, s.uid, {s.uid: s}) for n, s in enumerate(nodes)], []))


def counters(**changes: int) -> dict[str, int]:
    return {
        "records_in": 0,
        "records_out": 0,
        "late_records": 0,
        "dead_letters": 0,
        "failed_records": 0,
        "paused_splits": 0,
        "watermark_ms": WATERMARK_MIN_MS,
        "max_event_time_ms": WATERMARK_MIN_MS,
        **changes,
    }


def slot(waiting: tuple[str, ...] = (), **tasks: dict[str, int]) -> Progress:
    return Progress(attempt=1, tasks=tasks, waiting=waiting)


def test_records_in_are_those_of_sources_and_records_out_those_into_sinks() -> None:
    slots = [
        slot(read=counters(records_in=10), window=counters(records_in=8, records_out=2)),
        slot(read=counters(records_in=5), window=counters(records_in=7, records_out=1)),
    ]
    progress = meter().measure("running", slots, 0)
    assert (progress.records_in, progress.records_out, progress.slots) == (15, 3, 2)
    assert progress.task_counters["window"]["records_in"] == 15


def test_rates_are_per_second_between_two_reports() -> None:
    measured = meter()
    assert measured.measure("running", [slot(read=counters(records_in=10))], 0).records_in_per_s == 0
    progress = measured.measure("running", [slot(read=counters(records_in=1_010, records_out=50))], 500)
    assert (progress.records_in_per_s, progress.records_out_per_s) == (2_000, 100)


def test_a_new_attempt_starts_rates_anew() -> None:
    measured = meter()
    measured.measure("running", [slot(read=counters(records_in=1_000_000))], 0)
    measured.on_event("attempt_started", {"attempt": 2})
    progress = measured.measure("running", [slot(read=counters(records_in=10))], 1_000)
    assert (progress.records_in_per_s, progress.attempt) == (0, 2)


def test_late_records_are_of_all_attempts() -> None:
    measured = meter()
    measured.measure("running", [slot(read=counters(late_records=3))], 0)
    measured.on_event("attempt_started", {"attempt": 2})
    assert measured.late_records == 3
    assert measured.measure("running", [slot(read=counters(late_records=2))], 0).late_records == 5


def test_the_watermark_is_the_lowest_of_the_tasks_behind_the_sources() -> None:
    slots = [
        slot(read=counters(watermark_ms=90, max_event_time_ms=120), window=counters(watermark_ms=50)),
        slot(read=counters(watermark_ms=80, max_event_time_ms=100), window=counters(watermark_ms=60)),
    ]
    progress = meter().measure("running", slots, 0)
    assert (progress.watermark_ms, progress.watermark_lag_ms) == (50, 70)
    assert progress.task_counters["read"]["watermark_ms"] == 80
    assert progress.task_counters["read"]["max_event_time_ms"] == 120


def test_a_slot_without_a_watermark_yet_means_none() -> None:
    slots = [slot(read=counters(watermark_ms=90)), slot(read=counters())]
    assert meter().measure("running", slots, 0).watermark_ms is None
    assert meter().measure("running", [*slots[:1], None], 0).watermark_ms is None


def test_several_chains_that_begin_and_end_in_one_task_have_a_watermark() -> None:
    tasks = {"a": counters(watermark_ms=7), "b": counters(watermark_ms=5)}
    assert meter("a", "b").measure("running", [slot(**tasks)], 0).watermark_ms == 5


def test_the_end_of_event_time_has_no_lag() -> None:
    tasks = {"read": counters(watermark_ms=WATERMARK_MAX_MS, max_event_time_ms=9)}
    progress = meter().measure("running", [slot(**tasks)], 0)
    assert (progress.watermark_ms, progress.watermark_lag_ms) == (WATERMARK_MAX_MS, None)


def test_without_event_time_there_is_no_watermark() -> None:
    slots = [slot(read=counters(watermark_ms=5))]
    assert meter(watermarks=None).measure("running", slots, 0).watermark_ms is None


def test_a_failed_checkpoint_is_shown_until_one_completes() -> None:
    measured = meter()
    state = {"totals": {"rows": 7, "bytes": 500}}
    completed = {"checkpoint_id": 3, "duration_ms": 40, "bytes": 500, "state": state}
    measured.on_event("checkpoint_completed", completed)
    measured.on_event("checkpoint_failed", {"checkpoint_id": 4, "reason": "disk full"})
    progress = measured.measure("running", [], 0)
    assert (progress.last_checkpoint_id, progress.last_checkpoint_failure) == (3, "disk full")
    measured.on_event("checkpoint_completed", {**completed, "checkpoint_id": 5})
    progress = measured.measure("running", [], 0)
    assert (progress.last_checkpoint_id, progress.last_checkpoint_failure) == (5, None)
    assert (progress.last_checkpoint_ms, progress.last_checkpoint_bytes) == (40, 500)
    assert progress.last_checkpoint_state == state


def test_what_is_waited_for_is_said_once() -> None:
    slots = [slot(waiting=("broker away",)), slot(waiting=("broker away", "other"))]
    assert meter().measure("running", slots, 0).waiting == ("broker away", "other")


def test_restarts_are_counted() -> None:
    measured = meter()
    for _ in range(2):
        measured.on_event("restarted", {"attempt": 2})
    assert measured.measure("running", [], 0).restarts == 2


def test_the_busiest_slot_is_shown() -> None:
    slots = [Progress(attempt=1, tasks={}, busy_ratio=ratio) for ratio in (0.2, 0.9, 0.4)]
    assert meter().measure("running", [*slots, None], 0).busy_ratio == 0.9
    assert meter().measure("starting", [None], 0).busy_ratio == 0


def test_a_job_runs_for_people_once_records_flow() -> None:
    """Sinks may take long to commit what was restored; meanwhile it reads already."""
    assert shown_phase(JobPhase.STARTING, has_records=False) == "starting"
    assert shown_phase(JobPhase.STARTING, has_records=True) == "running"
    assert shown_phase(JobPhase.RUNNING, has_records=False) == "running"
    assert shown_phase(JobPhase.RESTARTING, has_records=True) == "restarting"
