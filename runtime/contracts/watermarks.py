"""WatermarkStrategy: how event time advances in a source."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.explained_calls import explained


@explained
@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """How event time advances in a source: per split, then the minimum over splits.

    A split's watermark is its highest event time so far less `out_of_orderness_ms`, less one. A split
    that has been at its end for `idle_after_ms` is left out of the minimum until its next record.
    """

    event_time: str | None
    """The column with event time: int64 in ms or an Arrow timestamp. None: the record's timestamp."""
    out_of_orderness_ms: int
    idle_after_ms: int | None = None

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
