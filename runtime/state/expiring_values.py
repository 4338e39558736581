"""Values that expire: RowValues of a state with a time to live, each with the time at which it is forgotten.

What expires at x is there for whoever comes before x, and for nobody from x on. A record comes at its event
time, or at the watermark if that is further; a timer at the time it was set for. So what a record finds
does not hang on how the records were cut into batches, and it is all the same whether what has expired is
still in memory: `expire` takes it out once no one can come before x any more (sweep.py), and snapshots leave
it out already.

Memory: beside the values one 64-bit number for each row, the earliest time at which something in it expires,
or one before that. It is an array of Python's, since it is asked for by the record, and a column for NumPy,
since it is swept by the thousand.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s
from onceflow.runtime.state.description import TimeToLive
from onceflow.runtime.state.row_values import Codec, Cursor, RowValues
from onceflow.runtime.state.table import Frozen, LiveRows

NEVER_MS = WATERMARK_MAX_MS
"""The time of a row that holds nothing."""
LATEST_MS = NEVER_MS - 1


class ExpiringValues(RowValues):
    """What the three kinds have in common: the earliest time of each row."""

    def __init__(self, codec: Codec, cursor: Cursor, ttl: TimeToLive) -> None:
        super().__init__(codec, cursor)
        self.ttl = ttl
        self._is_by_clock = ttl.is_by_clock
        self._first = array("q")

    def _now_ms(self) -> int:
        """The time at which the current record or timer comes."""
        return self.cursor.clock_ms if self._is_by_clock else self.cursor.event_ms

    @property
    def passed_ms(self) -> int:
        """Nobody comes before this time any more. Never so late that a row which holds nothing expires."""
        return min(self.cursor.clock_ms if self._is_by_clock else self.cursor.passed_ms, LATEST_MS)

    def grow(self, size: int) -> None:
        more = size - len(self._first)
        if more > 0:
            self._first.frombytes(np.full(more, NEVER_MS, np.int64).tobytes())
        super().grow(size)

    def keep(self, rows: Indices) -> None:
        self._first = array("q", self.column().take(rows).tobytes())
        super().keep(rows)

    def clear(self, rows: Indices) -> None:
        self.column()[rows] = NEVER_MS
        super().clear(rows)

    def forget(self, row: int) -> None:
        super().forget(row)
        self._first[row] = NEVER_MS

    def column(self) -> Int64s:
        """The earliest times by row: a view, to be let go of before there are more rows."""
        return np.frombuffer(self._first, np.int64)

    @abstractmethod
    def expire(self, rows: Indices, until_ms: int) -> None:
        """Forget what has expired in these rows at this time."""

    @abstractmethod
    def freeze_times(self) -> Frozen:
        """When what is in the rows now expires, in the places of `freeze`."""

    @abstractmethod
    def load_times(self, rows: Indices, times: pa.Array) -> None:
        """Restore what `freeze_times` gave, for rows whose values are there."""

    @abstractmethod
    def begin(self, rows: Indices) -> None:
        """Let what is in these rows, which has no time, be as if it were written now, when `passed_ms` is
        known."""

    def _written_ms(self) -> int:
        return min(self._now_ms() + self.ttl.ms, LATEST_MS)

    def _begun_ms(self) -> int:
        assert self.passed_ms != WATERMARK_MIN_MS, "there is no time to begin with"
        return min(self.passed_ms + self.ttl.ms, LATEST_MS)


class ExpiringValue(ExpiringValues):
    """A ValueState's: the row's earliest time is the value's own."""

    def sees(self, row: int) -> bool:
        """Whether the value has not expired, before it is read; which may renew it."""
        until_ms = self._first[row]
        if until_ms <= self._now_ms():
            return False
        if self.ttl.is_renewed_by_reads and until_ms != NEVER_MS:
            self._first[row] = max(until_ms, self._written_ms())
        return True

    def written(self, row: int) -> None:
        """The value was set. One from before never makes it expire earlier."""
        until_ms, before = self._written_ms(), self._first[row]
        if before == NEVER_MS or before < until_ms:
            self._first[row] = until_ms

    def save(self, row: int) -> Any:
        return super().save(row), self._first[row]

    def bring_back(self, row: int, saved: Any) -> None:
        value, self._first[row] = saved
        super().bring_back(row, value)

    def expire(self, rows: Indices, until_ms: int) -> None:
        self.clear(rows)

    def freeze_times(self) -> Frozen:
        first, passed_ms = self.column().copy(), self.passed_ms

        def times(rows: Indices) -> pa.Array:
            chosen = first.take(rows)
            return pa.array(chosen, mask=(chosen <= passed_ms) | (chosen == NEVER_MS))

        return times

    def load_times(self, rows: Indices, times: pa.Array) -> None:
        self.column()[rows] = times.fill_null(NEVER_MS).to_numpy()

    def begin(self, rows: Indices) -> None:
        for row in rows.tolist():
            if self.values[row] is not None:
                self._first[row] = self._begun_ms()

    def _as_they_are(self, live: LiveRows) -> Callable[[Indices], list[Any]]:
        values, first, passed_ms = live.copied(self.values), self._first[:], self.passed_ms
        return lambda rows: [
            value if first[row] > passed_ms else None
            for value, row in zip(values(rows), rows.tolist(), strict=True)
        ]
