"""Items that expire: lists and maps of a state with a time to live, each element and entry by itself.

Beside the items of a row are their times, in the same order; the row's earliest time is at most the least of
them (expiring_values.py).
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from onceflow.runtime.records import Indices
from onceflow.runtime.state.description import TimeToLive
from onceflow.runtime.state.expiring_values import NEVER_MS, ExpiringValues
from onceflow.runtime.state.row_values import Codec, Cursor
from onceflow.runtime.state.table import Frozen, LiveRows

TIMES_TYPE = pa.list_(pa.field("item", pa.int64(), nullable=False))


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

    def _as_they_are(self, live: LiveRows) -> Callable[[Indices], list[Any]]:
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
