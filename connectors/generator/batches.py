"""GeneratorPlanner: made-up records in batches, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, SplitState
from onceflow.runtime.errors import UsageError

RECORDS_MAX = 100_000
"""The records of a batch if no limit is given."""


def made_by(split: int, of: int, records: int) -> int:
    """How many of the first `records` are of this split."""
    return max(0, -(-(records - split) // of))


class GeneratorPlanner:
    """A BatchPlanner. A place is how many records there are before it, and when the first batch began."""

    def __init__(
        self, splits: int, rate: float | None, count: int | None, clock: Clock, limit: BatchLimit
    ) -> None:
        self._splits = splits
        self._rate = rate
        self._count = count
        self._clock = clock
        self._records_max = limit.records or RECORDS_MAX
        self._held_ms: float | None = None

    def first(self) -> Json:
        return {"records": 0, "began_ms": None}

    def next(self, place: Json) -> Json:
        now_ms = self._clock.now_ms() if self._held_ms is None else self._held_ms
        began_ms = now_ms if place["began_ms"] is None else place["began_ms"]
        end = place["records"] + self._records_max
        if self._rate is not None:
            end = min(end, 1 + int(max(0, now_ms - began_ms) / 1_000 * self._rate))
        if self._count is not None:
            end = min(end, self._count)
        return place if end <= place["records"] else {"records": end, "began_ms": began_ms}

    def hold(self) -> None:
        if self._count is None and self._rate is None:
            raise UsageError(
                "records that are made up without an end are never all there: give count or rate, or another "
                "trigger than availableNow"
            )
        self._held_ms = self._clock.now_ms()

    def tasks(self, begin: Json, end: Json) -> Sequence[Sequence[SplitState]]:
        tasks = []
        for number in range(self._splits):
            made = made_by(number, self._splits, begin["records"])
            stop = made_by(number, self._splits, end["records"])
            if stop > made:
                position: Json = {"number": number, "of": self._splits, "made": made, "stop": stop}
                tasks.append([SplitState(f"{number}-of-{self._splits}", position)])
        return tasks

    def done(self, place: Json) -> None:
        """Records can be made again at any time."""

    def close(self) -> None:
        """Nothing is open."""
