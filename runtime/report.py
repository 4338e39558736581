"""What a running job tells: events as they happen, and its state once a second.

The command line makes a live line, JSON lines or metrics of it (onceflow/cli/report.py); the driver
only calls. Fields are JSON; secrets never get here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from onceflow.runtime.contracts import Json


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The job as it is now. Counters are of the current attempt; rates are records per second."""

    job: str
    phase: str
    attempt: int | None = None
    restarts: int = 0
    slots: int = 0
    records_in: int = 0
    records_out: int = 0
    records_in_per_s: float = 0.0
    records_out_per_s: float = 0.0
    late_records: int = 0
    """Over all attempts: a replay counts again."""
    dead_letters: int = 0
    failed_records: int = 0
    """For which a function raised, and that were dropped or sent to a side output (`on_error=`)."""
    watermark_ms: int | None = None
    """The lowest watermark of the tasks; None: none yet."""
    watermark_lag_ms: int | None = None
    """Highest event time seen less the watermark: how far results are behind the data."""
    last_checkpoint_id: int | None = None
    last_checkpoint_ms: int | None = None
    """The duration of the last checkpoint."""
    last_checkpoint_bytes: int | None = None
    last_checkpoint_state: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The `rows` and `bytes` of state in it, by the uid of the operator that keeps them."""
    last_checkpoint_failure: str | None = None
    """Set while the latest checkpoint is one that failed."""
    waiting: tuple[str, ...] = ()
    """What connectors wait for."""
    task_counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Counters by the uid of the task's head, summed over slots; watermark_ms is the lowest,
    max_event_time_ms the highest."""
    metrics: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """The user's own, by uid and name; see docs/functions.md."""
    busy_ratio: float = 0.0
    """The part of the last second in which the busiest slot had something to do, 0 to 1."""
    rss_bytes: int = 0
    """Resident memory of all processes with slots; each process counts once."""


class Reporter(Protocol):
    """Called by the driver's thread; must be quick and must not raise."""

    def event(self, name: str, fields: Mapping[str, Json]) -> None: ...

    def progress(self, progress: JobProgress) -> None: ...

    def close(self) -> None: ...


class Silent:
    """Tells nobody."""

    def event(self, name: str, fields: Mapping[str, Json]) -> None:
        pass

    def progress(self, progress: JobProgress) -> None:
        pass

    def close(self) -> None:
        pass
