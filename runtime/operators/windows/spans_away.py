"""SpansAway: windows that have no room in memory, key by key, and when they come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.operator import OperatorContext, RestoredState
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.records import WATERMARK_MAX_MS, Indices, Int64s, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.overflow import NO_WAKE_MS, GroupedOverflow, GroupsInMemory
from onceflow.runtime.state.tables import Layout, grouped_table

FIRING, GONE, BY_CLOCK = range(3)
"""The kinds of times at which keys come back: one of their windows fires by the watermark, is forgotten by
it, or fires by the clock."""
_WOKEN_MAX = 1 << 12
"""How many keys come back at a time."""
_Brought = TypeVar("_Brought")


class SpanOwner(Protocol):
    """Who has the columns of windows."""

    @property
    def holds_rows(self) -> bool:
        """Whether it holds numbers of rows between two calls: none is renumbered meanwhile."""
        ...

    def came_back(self, rows: Indices) -> None:
        """These windows have come back from where they were, or were restored."""
        ...

    def wakes_of(self, rows: Indices) -> Mapping[int, Int64s]:
        """When each of these windows has to be here, by the kind of time; NO_WAKE_MS: never."""
        ...


class SpansAway:
    """The table of one subtask's windows, and where those go that have no room. A key goes and comes back
    with all its windows: for a record of it, or when one of them is due.

    What has come back since it is due fires before room is made again: so each time something is done.
    """

    def __init__(self, layout: Layout) -> None:
        self.table = grouped_table(layout)
        self._layout = layout
        self._overflow: GroupedOverflow = GroupsInMemory(self.table)

    def open(self, context: OperatorContext, owner: SpanOwner, lateness: Lateness) -> None:
        context.begin(self.table)
        self._overflow = context.state.grouped_overflow(self.table, list(self._layout.columns))
        self._context = context
        self._owner = owner
        self._lateness = lateness

    def restore(self, states: Sequence[RestoredState], table: str) -> None:
        for state in states:
            for piece in state.batches(table):
                self._bringing(lambda piece=piece: self._overflow.load(piece))  # type: ignore[misc]
                self.make_room()

    def find_keys(self, records: Records) -> Indices:
        """The number of each record's key, whose windows are all here when it returns."""
        key_hash = records.key_hash
        assert key_hash is not None, "windows come after a key_by"
        return self._bringing(lambda: self._overflow.find_keys(records.batch, key_hash))

    def freeze(self) -> FrozenRows:
        return self._overflow.freeze(self._context.max_parallelism)

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._overflow.peek(asked, self._context.max_parallelism)

    def compact(self) -> None:
        """Let go of what was removed, and of keys that have no room."""
        if not self._owner.holds_rows:
            self._overflow.compact()
            self.make_room()

    def make_room(self) -> None:
        while not self._owner.holds_rows and self._overflow.needs_room():
            going = self._overflow.going()
            rows = self.table.rows_of_keys(going)
            keys = self.table.key_numbers(rows)
            wakes = {}
            for kind, times in self._owner.wakes_of(rows).items():
                first = np.full(self.table.key_count, NO_WAKE_MS)
                np.minimum.at(first, keys, times)
                wakes[kind] = first[going]
            self._overflow.make_room(going, wakes)

    # --- What is due ---

    def due_until(self, first_here_ms: int) -> int:
        """Up to when windows may fire now, at most to where event time is: those of earlier times are all
        here when it returns. The next ones come when these have fired. `first_here_ms`: none that is here
        fires earlier."""
        reached_ms, first_ms = self._lateness.reached_ms, self._overflow.first_wake(FIRING)
        if first_ms is None or first_ms > reached_ms:
            return reached_ms
        if first_here_ms <= first_ms:
            return first_ms
        return self._wake(FIRING, reached_ms)

    def bring_gone(self) -> bool:
        """Bring back some keys with windows to be forgotten, if there are any that are away; those that are
        here were forgotten."""
        first_ms = self._overflow.first_wake(GONE)
        is_due = first_ms is not None and first_ms <= self._lateness.reached_ms
        if is_due:
            self._wake(GONE, self._lateness.reached_ms)
        return is_due

    def bring_by_clock(self, now_ms: int, first_here_ms: int | None) -> bool:
        """Bring back some keys of which a window is due by the clock, if there are any that are away and what
        is here is not due earlier. Returns whether anything is due that was away."""
        first_ms = self._overflow.first_wake(BY_CLOCK)
        if first_ms is None or first_ms > now_ms:
            return False
        if first_here_ms is None or first_here_ms > first_ms:
            self._wake(BY_CLOCK, now_ms)
        return True

    @property
    def next_ms(self) -> int | None:
        """The watermark at which a key comes back, at the earliest. None: no key does."""
        times = (self._overflow.first_wake(FIRING), self._overflow.first_wake(GONE))
        return min((ms for ms in times if ms is not None), default=None)

    @property
    def next_clock_ms(self) -> int | None:
        return self._overflow.first_wake(BY_CLOCK)

    def close(self) -> None:
        self._overflow.close()

    def _wake(self, kind: int, until_ms: int) -> int:
        self.compact()  # what has fired takes room, too
        return self._bringing(lambda: self._overflow.wake(kind, until_ms, _WOKEN_MAX))

    def _bringing(self, bring: Callable[[], _Brought]) -> _Brought:
        """Rows may come back with this call."""
        before = self.table.size
        found = bring()
        if self.table.size > before:
            self._owner.came_back(np.arange(before, self.table.size))
        return found


def gone_ms(ends: Int64s, lateness_ms: int) -> Int64s:
    """When windows with these ends are forgotten: the last millisecond in which a row counts in them."""
    return np.minimum(ends - 1, WATERMARK_MAX_MS - 1 - lateness_ms) + lateness_ms
