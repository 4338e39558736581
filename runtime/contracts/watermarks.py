"""WatermarkStrategy: how event time advances in a source, and WatermarkGenerator: the user's own rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import Int64s

DEFAULT_ALIGNMENT_GROUP = "job"
"""The group of the sources that are given none."""


class WatermarkGenerator(ABC):
    """The user's own rule of how far event time has come in one split: a partition, a file.

    There is one object for each split. None is in a checkpoint: after a restore a new object begins, and the
    split goes on from the watermark that it had.
    """

    @abstractmethod
    def on_records(self, event_times: Int64s) -> int | None:
        """These records of the split were read, in this order; the watermark moves when they are processed.

        `event_times`: of each record, int64 in ms. Returns the split's watermark in ms: no record at or
        before it is expected any more. None: it stays where it is; so it does for a lower one than before.
        An error that it raises fails the job.
        """


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """How far a split may be ahead of the others in its group: see
    `WatermarkStrategy.with_watermark_alignment`."""

    max_drift_ms: int
    group: str


@explained
@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """How event time advances in a source: per split, then the minimum over splits.

    A split's watermark is its highest event time so far less `out_of_orderness_ms`, less one; or what its
    records or a WatermarkGenerator say. A split
    that has been at its end for `idle_after_ms` is left out of the minimum until its next record.
    """

    event_time: str | None
    """The column with event time: int64 in ms or an Arrow timestamp. None: the record's timestamp."""
    out_of_orderness_ms: int
    idle_after_ms: int | None = None
    marker: str | None = None
    """The column in which records bring the watermark: int64 in ms or an Arrow timestamp, null in most."""
    generator: Callable[[], WatermarkGenerator] | None = None
    """Makes the rule of one split."""
    alignment: WatermarkAlignment | None = None
    """None: every split is read as fast as it can be."""
    is_ingestion_time: bool = False
    """Whether event time is the clock's when a row is read. No column is read then."""

    @property
    def needs_timestamp(self) -> bool:
        """Whether event time is the record's own timestamp."""
        return self.event_time is None and not self.is_ingestion_time

    @staticmethod
    def bounded_out_of_orderness(
        bound: str | int, event_time: str | None = None, idle_after: str | int | None = None
    ) -> WatermarkStrategy:
        """Records of a split are at most `bound` out of order. Durations: "2 s", "500 ms", or int ms."""
        idle = None if idle_after is None else duration_ms(idle_after, "idle_after")
        return WatermarkStrategy(event_time, duration_ms(bound, "out_of_orderness"), idle)

    @staticmethod
    def monotonous(event_time: str | None = None, idle_after: str | int | None = None) -> WatermarkStrategy:
        """Event time never goes back within a split."""
        return WatermarkStrategy.bounded_out_of_orderness(0, event_time, idle_after)

    @staticmethod
    def punctuated(
        marker: str, event_time: str | None = None, idle_after: str | int | None = None
    ) -> WatermarkStrategy:
        """Records say themselves how far event time has come in their split: where the column `marker` is not
        null it is the watermark, once all records that were read with it are processed."""
        idle = None if idle_after is None else duration_ms(idle_after, "idle_after")
        return WatermarkStrategy(event_time, 0, idle, marker=marker)

    @staticmethod
    def generated(
        generator: Callable[[], WatermarkGenerator],
        event_time: str | None = None,
        idle_after: str | int | None = None,
    ) -> WatermarkStrategy:
        """A rule of yours: `generator`, a WatermarkGenerator class or a function that makes one, is called
        once for each split."""
        idle = None if idle_after is None else duration_ms(idle_after, "idle_after")
        return WatermarkStrategy(event_time, 0, idle, generator=generator)

    @staticmethod
    def ingestion_time() -> WatermarkStrategy:
        """Event time is the wall clock of the slot when it read the row, and never goes back within a split.
        The watermark goes with the clock, whether rows come or not, so no split is idle and no row late.

        Not repeatable: rows that are read again after a failure get new times, and may be in other windows
        than before. Each of them counts once all the same.
        """
        return WatermarkStrategy(None, 0, is_ingestion_time=True)

    def with_watermark_alignment(
        self, max_drift: str | int, group: str = DEFAULT_ALIGNMENT_GROUP
    ) -> WatermarkStrategy:
        """The same, and a split whose watermark is more than `max_drift` ahead of the slowest one is left
        unread until that has caught up.

        The slowest of all splits of all sources with the same `group`; those that are idle or have finished
        do not count, and one without any record yet holds the others: give `idle_after` where a split may
        have none. For sources whose readers can pause (PausableSource). Results are the same; what waits in
        state for the slowest split is less. Raises OptionError for a drift below 1 ms.
        """
        drift_ms = duration_ms(max_drift, "max_drift")
        if drift_ms < 1:
            raise OptionError(f"max_drift={max_drift!r}: give 1 ms or more")
        if not isinstance(group, str) or not group:
            raise OptionError(f"group={group!r}: give the group a name")
        return replace(self, alignment=WatermarkAlignment(drift_ms, group))
