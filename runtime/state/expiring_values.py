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

import copy
from abc import abstractmethod
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s
from onceflow.runtime.state.description import TimeToLive
from onceflow.runtime.state.row_values import Codec, Cursor, RowValues
from onceflow.runtime.state.table import Frozen

NEVER_MS = WATERMARK_MAX_MS
"""The time of a row that holds nothing."""
LATEST_MS = NEVER_MS - 1
TIMES_TYPE = pa.list_(pa.field("item", pa.int64(), nullable=False))


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

    def _as_they_are(self) -> Callable[[Indices], list[Any]]:
        values, first, passed_ms = self.values.copy(), self._first[:], self.passed_ms
        return lambda rows: [values[row] if first[row] > passed_ms else None for row in rows.tolist()]


class ExpiringItems(ExpiringValues):
    """What lists and maps have in common: a time for each element or entry, in the same order."""

    def __init__(self, codec: Codec, cursor: Cursor, ttl: TimeToLive) -> None:
        super().__init__(codec, cursor, ttl)
        self._times: list[Any] = []

    def grow(self, size: int) -> None:
        self._times.extend([None] * (size - len(self._times)))
        super().grow(size)

    def keep(self, rows: Indices) -> None:
        times = self._times
        self._times = [times[row] for row in rows.tolist()]
        super().keep(rows)

    def clear(self, rows: Indices) -> None:
        for row in rows.tolist():
            self._times[row] = None
        super().clear(rows)

    def forget(self, row: int) -> None:
        super().forget(row)
        self._times[row] = None

    def own(self, row: int) -> Any:
        if row not in self._owned:
            self._times[row] = copy.copy(self._times[row])
        return super().own(row)

    def save(self, row: int) -> Any:
        return super().save(row), self._first[row], self._times[row]

    def bring_back(self, row: int, saved: Any) -> None:
        value, self._first[row], self._times[row] = saved
        super().bring_back(row, value)

    def expire(self, rows: Indices, until_ms: int) -> None:
        for row in rows.tolist():
            left, times = self._left(self.values[row], self._times[row], until_ms)
            if left:
                self.values[row], self._times[row] = left, times
                self._first[row] = min(self._each(times))
            else:
                self.forget(row)
            self._owned.discard(row)

    def freeze_times(self) -> Frozen:
        of = self._alive_of()

        def times(rows: Indices) -> pa.Array:
            found = (of(row)[1] for row in rows.tolist())
            return pa.array([None if t is None else self._each(t) for t in found], TIMES_TYPE)

        return times

    def load_times(self, rows: Indices, times: pa.Array) -> None:
        for row, of_row in zip(rows.tolist(), times.to_pylist(), strict=True):
            if of_row is not None:
                self._set_times(row, of_row)

    def begin(self, rows: Indices) -> None:
        for row in rows.tolist():
            if self.values[row] is not None:
                self._set_times(row, [self._begun_ms()] * len(self.values[row]))

    @abstractmethod
    def _left(self, items: Any, times: Any, now_ms: int) -> tuple[Any, Any]:
        """Fresh ones, of what has not expired."""

    @abstractmethod
    def _each(self, times: Any) -> list[int]: ...

    @abstractmethod
    def _set_times(self, row: int, times: list[int]) -> None:
        """The times of the row's items, in their order."""

    def _note(self, row: int, until_ms: int) -> None:
        if until_ms < self._first[row]:
            self._first[row] = until_ms

    def _alive_of(self) -> Callable[[int], tuple[Any, Any]]:
        """What is in a row now that has not expired, and its times; None twice if nothing is."""
        values, times, first, passed_ms = (
            self.values.copy(),
            self._times.copy(),
            self._first[:],
            self.passed_ms,
        )

        def alive(row: int) -> tuple[Any, Any]:
            if first[row] > passed_ms:
                return values[row], times[row]
            left, of_left = self._left(values[row], times[row], passed_ms)
            return (left, of_left) if left else (None, None)

        return alive

    def _as_they_are(self) -> Callable[[Indices], list[Any]]:
        of = self._alive_of()
        return lambda rows: [of(row)[0] for row in rows.tolist()]


class ExpiringList(ExpiringItems):
    """A ListState's: each element expires by itself."""

    def seen(self, row: int) -> list[Any]:
        """A copy of what has not expired, to be read; which may renew it."""
        values, times, now_ms = self.values[row], self._times[row], self._now_ms()
        if values is None:
            return []
        if self.ttl.is_renewed_by_reads:
            until_ms = self._written_ms()
            self._times[row] = [max(t, until_ms) if t > now_ms else t for t in times]
        return list(values) if self._first[row] > now_ms else self._left(values, times, now_ms)[0]

    def added(self, row: int) -> None:
        """An element was appended to the row's own list, or to none."""
        until_ms = self._written_ms()
        if self._times[row] is None:
            self._times[row] = [until_ms]
        else:
            self._times[row].append(until_ms)
        self._note(row, until_ms)

    def replaced(self, row: int) -> None:
        """There is another list now."""
        self._times[row], self._first[row] = None, NEVER_MS
        if self.values[row] is not None:
            self._set_times(row, [self._written_ms()] * len(self.values[row]))

    def _left(self, items: Any, times: Any, now_ms: int) -> tuple[Any, Any]:
        alive = [(item, t) for item, t in zip(items, times, strict=True) if t > now_ms]
        return [item for item, _ in alive], [t for _, t in alive]

    def _each(self, times: Any) -> list[int]:
        return list(times)

    def _set_times(self, row: int, times: list[int]) -> None:
        assert len(times) == len(self.values[row]), "a time for each element"
        self._times[row], self._first[row] = times, min(times)


class ExpiringMap(ExpiringItems):
    """A MapState's: each entry expires by itself."""

    def sees(self, row: int, key: Any) -> bool:
        """Whether there is such an entry, which has not expired, before it is read; which may renew it."""
        times = self._times[row]
        until_ms = None if times is None else times.get(key)
        if until_ms is None or until_ms <= self._now_ms():
            return False
        if self.ttl.is_renewed_by_reads and (written_ms := self._written_ms()) > until_ms:
            self.own(row)
            self._times[row][key] = written_ms
        return True

    def seen(self, row: int) -> dict[Any, Any]:
        """A copy of what has not expired, to be read; which may renew it."""
        entries = self.alive(row)
        if entries and self.ttl.is_renewed_by_reads:
            until_ms = self._written_ms()
            self._times[row] = {
                k: max(t, until_ms) if k in entries else t for k, t in self._times[row].items()
            }
        return entries

    def alive(self, row: int) -> dict[Any, Any]:
        """A copy of what has not expired, to be counted."""
        entries, now_ms = self.values[row], self._now_ms()
        if entries is None or self._first[row] > now_ms:
            return dict(entries or {})
        left: dict[Any, Any] = self._left(entries, self._times[row], now_ms)[0]
        return left

    def put(self, row: int, key: Any) -> None:
        """The entry was put into the row's own map. One from before never makes it expire earlier."""
        until_ms = self._written_ms()
        times = self._times[row]
        if times is None:
            times = self._times[row] = {}
        times[key] = max(times.get(key, until_ms), until_ms)
        self._note(row, until_ms)

    def removed(self, row: int, key: Any) -> None:
        """The entry was taken out of the row's own map, in which others are left."""
        del self._times[row][key]

    def _left(self, items: Any, times: Any, now_ms: int) -> tuple[Any, Any]:
        alive = {key: t for key, t in times.items() if t > now_ms}
        return {key: items[key] for key in alive}, alive

    def _each(self, times: Any) -> list[int]:
        return list(times.values())

    def _set_times(self, row: int, times: list[int]) -> None:
        self._times[row] = dict(zip(self.values[row], times, strict=True))
        self._first[row] = min(times)
