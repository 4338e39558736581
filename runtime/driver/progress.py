"""The job's progress, made from the slots' counters. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.contracts import Json
from onceflow.runtime.control.messages import Progress
from onceflow.runtime.functions.metrics import summed
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.report import JobProgress


def shown_phase(phase: JobPhase, has_records: bool) -> str:
    """The phase that people are shown: a job runs once records flow. The coordinator's own phase is later,
    where what the restored checkpoint promised takes long to commit; `waiting` says that then."""
    return (JobPhase.RUNNING if phase is JobPhase.STARTING and has_records else phase).value


class ProgressMeter:
    """Sums counters over slots, makes rates of them, and remembers what events said."""

    def __init__(self, graph: JobGraph) -> None:
        self._job = graph.job
        self._source_heads = {node.uid for node in graph.sources()}
        self._has_event_time = any(node.watermarks for node in graph.sources())
        self._attempt: int | None = None
        self._restarts = 0
        self._late_before = 0
        self._late = 0
        self._sample: tuple[float, int, int] | None = None
        self._rates = (0.0, 0.0)
        self._checkpoint: Mapping[str, Json] = {}
        self._failure: str | None = None

    @property
    def late_records(self) -> int:
        """How many records were late, over all attempts."""
        return self._late_before + self._late

    @property
    def restarts(self) -> int:
        return self._restarts

    def on_event(self, name: str, fields: Mapping[str, Json]) -> None:
        match name:
            case "attempt_started":
                self._attempt = fields["attempt"]
                self._late_before += self._late
                self._late = 0
                self._sample, self._rates = None, (0.0, 0.0)
            case "restarted":
                self._restarts += 1
            case "checkpoint_completed":
                self._checkpoint, self._failure = fields, None
            case "checkpoint_failed":
                self._failure = fields["reason"]

    def measure(self, phase: str, slots: Sequence[Progress | None], now_ms: float) -> JobProgress:
        """Now. A slot that has not reported yet is None."""
        reports = [slot for slot in slots if slot is not None]
        totals = _summed(report.tasks for report in reports)
        records_in = sum(totals[head]["records_in"] for head in totals.keys() & self._source_heads)
        records_out = sum(counters["records_out"] for counters in totals.values())
        self._late = sum(counters["late_records"] for counters in totals.values())
        self._measure_rates(now_ms, records_in, records_out)
        watermark_ms = self._watermark(reports) if len(reports) == len(slots) else None
        newest_ms = max((c["max_event_time_ms"] for c in totals.values()), default=WATERMARK_MIN_MS)
        lag_ms = None
        if watermark_ms is not None and watermark_ms != WATERMARK_MAX_MS and newest_ms != WATERMARK_MIN_MS:
            lag_ms = max(0, newest_ms - watermark_ms)
        return JobProgress(
            job=self._job,
            phase=phase,
            attempt=self._attempt,
            restarts=self._restarts,
            slots=len(reports),
            records_in=records_in,
            records_out=records_out,
            records_in_per_s=self._rates[0],
            records_out_per_s=self._rates[1],
            late_records=self.late_records,
            failed_records=sum(counters["failed_records"] for counters in totals.values()),
            dead_letters=sum(counters["dead_letters"] for counters in totals.values()),
            watermark_ms=watermark_ms,
            watermark_lag_ms=lag_ms,
            last_checkpoint_id=self._checkpoint.get("checkpoint_id"),
            last_checkpoint_ms=self._checkpoint.get("duration_ms"),
            last_checkpoint_bytes=self._checkpoint.get("bytes"),
            last_checkpoint_state=self._checkpoint.get("state", {}),
            last_checkpoint_failure=self._failure,
            waiting=tuple(dict.fromkeys(reason for report in reports for reason in report.waiting)),
            task_counters=totals,
            metrics=summed([() if slot is None else slot.metrics for slot in slots]),
            busy_ratio=max((report.busy_ratio for report in reports), default=0.0),
        )

    def _measure_rates(self, now_ms: float, records_in: int, records_out: int) -> None:
        if self._sample is not None and now_ms > self._sample[0]:
            seconds = (now_ms - self._sample[0]) / 1000
            self._rates = (
                max(0, records_in - self._sample[1]) / seconds,
                max(0, records_out - self._sample[2]) / seconds,
            )
        self._sample = (now_ms, records_in, records_out)

    def _watermark(self, reports: Iterable[Progress]) -> int | None:
        if not self._has_event_time:
            return None
        all_ms = [
            counters["watermark_ms"]
            for report in reports
            for head, counters in report.tasks.items()
            if head not in self._source_heads or report.tasks.keys() <= self._source_heads
        ]
        lowest_ms = min(all_ms, default=WATERMARK_MIN_MS)
        return None if lowest_ms == WATERMARK_MIN_MS else lowest_ms


_MERGE: Mapping[str, Callable[[int, int], int]] = {"max_event_time_ms": max, "watermark_ms": min}
"""How a counter of two slots becomes one, if not by addition."""


def _summed(slots: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    totals: dict[str, dict[str, int]] = {}
    for tasks in slots:
        for head, counters in tasks.items():
            total = totals.setdefault(head, {})
            for name, value in counters.items():
                known = total.get(name)
                total[name] = value if known is None else _MERGE.get(name, int.__add__)(known, value)
    return totals
