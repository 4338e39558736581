"""Metrics: what a running job tells, served to Prometheus as well.

Names are Flink's, as its own Prometheus reporter writes them, with `flink_` replaced by `onceflow_`, so
that a dashboard moves over by one replacement; counters are gauges there too, without `_total`. What
Flink has no name for is at the end of each list. docs/operations.md explains every one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from onceflow.cli.function_metrics import families
from onceflow.runtime.errors import OptionError
from onceflow.runtime.records import WATERMARK_MIN_MS
from onceflow.runtime.report import JobProgress, Reporter

LOOPBACK = "127.0.0.1"


class Metrics:
    """A Reporter that passes everything on to another and serves the latest of it over HTTP.

    Listens on `host` only; port 0: any free one, see `port`. The server's threads read what the driver's
    thread has left; neither waits for the other. Raises OptionError if the port can't be had.
    """

    def __init__(
        self,
        reporter: Reporter,
        port: int,
        host: str = LOOPBACK,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = reporter
        self._job = JobMetrics(monotonic_s)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._job)
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except (OSError, OverflowError) as error:
            raise OptionError(
                f"--metrics-port {port}: can't listen on {host}: {error}: choose another port, or 0 for any"
            ) from error
        self._reporter.event("metrics_started", {"host": host, "port": self.port})

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        self._job.on_event(name, fields)
        self._reporter.event(name, fields)

    def progress(self, progress: JobProgress) -> None:
        self._job.on_progress(progress)
        self._reporter.progress(progress)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._reporter.close()


class JobMetrics(Collector):
    """The state behind the metrics. The driver's thread writes whole values, a scrape reads them."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._progress: JobProgress | None = None
        self._completed = 0
        self._failed = 0
        self._alignment_ms: int | None = None
        self._in_flight_bytes: int | None = None
        self._measured_s: float | None = None
        self._rates: Mapping[str, tuple[float, float]] = {}

    def on_event(self, name: str, fields: Mapping[str, Any]) -> None:
        match name:
            case "checkpoint_completed":
                self._completed += 1
                self._alignment_ms = fields.get("alignment_ms")
                self._in_flight_bytes = fields.get("in_flight_bytes")
            case "checkpoint_failed":
                self._failed += 1
            case "attempt_started":
                self._measured_s, self._rates = None, {}

    def on_progress(self, progress: JobProgress) -> None:
        now_s, before = self._monotonic_s(), self._progress
        if self._measured_s is not None and before is not None and now_s > self._measured_s:
            seconds = now_s - self._measured_s
            self._rates = {
                task: _rates(before.task_counters.get(task, {}), counters, seconds)
                for task, counters in progress.task_counters.items()
            }
        self._measured_s = now_s
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        """Called for each scrape. Nothing until the driver has told something."""
        progress = self._progress
        if progress is not None:
            yield from self._of_job(progress)
            yield from self._of_tasks(progress)
            yield from families(progress.job, progress.metrics)

    def _of_job(self, progress: JobProgress) -> Iterator[GaugeMetricFamily]:
        values: Mapping[str, tuple[str, float | None]] = {
            "busyTimeMsPerSecond": ("Of the busiest slot.", round(1_000 * progress.busy_ratio)),
            "lastCheckpointDuration": ("Of the last completed checkpoint, ms.", progress.last_checkpoint_ms),
            "lastCheckpointSize": ("State files of it, bytes.", progress.last_checkpoint_bytes),
            "lastCompletedCheckpointId": ("Its id.", progress.last_checkpoint_id),
            "lastCheckpointAlignmentTime": (
                "Longest wait of a task for its barriers, ms.",
                self._alignment_ms,
            ),
            "lastCheckpointPersistedInFlightData": (
                "The part of it in flight, bytes.",
                self._in_flight_bytes,
            ),
            "numberOfCompletedCheckpoints": ("Since this driver started.", self._completed),
            "numberOfFailedCheckpoints": ("Since this driver started.", self._failed),
            "numRestarts": ("Of the attempt, since this driver started.", progress.restarts),
            "runningState": ("1 while all slots run.", float(progress.phase == "running")),
            "slotMemoryUsed": ("Resident memory of the slots' processes, bytes.", progress.rss_bytes),
            "taskSlotsTotal": ("Slots that report.", progress.slots),
            "watermarkLag": ("Newest event time less the watermark, ms.", progress.watermark_lag_ms),
        }
        for name, (text, value) in values.items():
            if value is not None:
                family = GaugeMetricFamily(f"onceflow_jobmanager_job_{name}", text, labels=("job_name",))
                family.add_metric((progress.job,), value)
                yield family

    def _of_tasks(self, progress: JobProgress) -> Iterator[GaugeMetricFamily]:
        rates = self._rates
        values: Mapping[str, tuple[str, Callable[[str, Mapping[str, int]], float]]] = {
            "numRecordsIn": ("In this attempt.", lambda _, c: c["records_in"]),
            "numRecordsOut": ("Into sinks, in this attempt.", lambda _, c: c["records_out"]),
            "numRecordsInPerSecond": (
                "Over the last second.",
                lambda task, _: rates.get(task, (0.0, 0.0))[0],
            ),
            "numRecordsOutPerSecond": (
                "Over the last second.",
                lambda task, _: rates.get(task, (0.0, 0.0))[1],
            ),
            "numLateRecordsDropped": (
                "Late, also if a late output takes them.",
                lambda _, c: c["late_records"],
            ),
            "numFailedRecords": ("Dropped or set aside by on_error=.", lambda _, c: c["failed_records"]),
            "pausedSplits": ("Unread, by watermark alignment.", lambda _, c: c["paused_splits"]),
            "numDeadLetterRecords": ("That could not be decoded.", lambda _, c: c["dead_letters"]),
        }
        for name, (text, value_of) in values.items():
            family = _task_family(name, text)
            for task, counters in progress.task_counters.items():
                family.add_metric((progress.job, task), value_of(task, counters))
            yield family
        watermarks = _task_family("currentInputWatermark", "Lowest of the subtasks, ms; none yet: left out.")
        for task, counters in progress.task_counters.items():
            if counters["watermark_ms"] != WATERMARK_MIN_MS:
                watermarks.add_metric((progress.job, task), counters["watermark_ms"])
        yield watermarks


def _task_family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"onceflow_taskmanager_job_task_{name}", text, labels=("job_name", "task_name"))


def _rates(before: Mapping[str, int], now: Mapping[str, int], seconds: float) -> tuple[float, float]:
    """Records in and out per second; never negative, as counters start anew with an attempt."""
    rate_in, rate_out = (max(0, now[name] - before.get(name, 0)) for name in ("records_in", "records_out"))
    return rate_in / seconds, rate_out / seconds
