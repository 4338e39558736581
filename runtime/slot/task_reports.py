"""What a task reports: its snapshot at a barrier, on its way to be durable, and its counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.contracts import (
    Committable,
    PreCommit,
    SplitProgress,
)
from onceflow.runtime.operators.operator import (
    FrozenState,
)
from onceflow.runtime.records import (
    WATERMARK_MIN_MS,
    Barrier,
)


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One task at a barrier, frozen in memory. By uid."""

    barrier: Barrier
    splits: Mapping[str, Sequence[SplitProgress]] = field(default_factory=dict)
    states: Mapping[str, FrozenState] = field(default_factory=dict)
    pre_commits: Mapping[str, PreCommit] = field(default_factory=dict)
    pause_ms: float = 0.0
    """How long the task stood still for it."""


@dataclass(slots=True)
class PendingSnapshot:
    """A checkpoint whose snapshots this slot is taking and writing."""

    unwritten: set[int]
    """Numbers of the tasks whose snapshot is not durable yet."""
    splits: dict[str, Sequence[SplitProgress]] = field(default_factory=dict)
    states: list[StateHandle] = field(default_factory=list)
    committables: list[Committable] = field(default_factory=list)
    first_ms: float = 0.0
    last_ms: float = 0.0
    pause_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class WrittenSnapshot:
    """A task's snapshot once it is durable; or why it is not."""

    states: Sequence[StateHandle] = ()
    committables: Sequence[Committable] = ()
    failure: str | None = None
    is_unavailable: bool = False


@dataclass(slots=True)
class TaskCounters:
    """What the live line and the metrics read; written by the task only."""

    records_in: int = 0
    records_out: int = 0
    late_records: int = 0
    dead_letters: int = 0
    failed_records: int = 0
    paused_splits: int = 0
    watermark_ms: int = WATERMARK_MIN_MS
    max_event_time_ms: int = WATERMARK_MIN_MS

    def as_dict(self) -> dict[str, int]:
        """The counters by name, as they are now (`dataclasses.asdict` takes ten times as long)."""
        return {name: getattr(self, name) for name in _COUNTERS}


_COUNTERS = tuple(field.name for field in fields(TaskCounters))
