"""KeyMemory: what a process function remembers, by key: declared states, timers, and when it is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.operator import OperatorContext, RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s, UInt64s
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.expiries import Expiries
from onceflow.runtime.state.expiring_values import ExpiringValues
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.overflow import NO_WAKE_MS, InMemory, Overflow
from onceflow.runtime.state.row_values import DeclaredStates, RowValues
from onceflow.runtime.state.sweep import Sweep
from onceflow.runtime.state.table import RowColumn
from onceflow.runtime.state.tables import Layout, tracked_table
from onceflow.runtime.state.timers import KeyTimers

TABLE = "keys"
CLOCK_TIMERS = "processing_timers"
"""A column of the table, there only if a key has such timers."""
EXPIRES = "expires"
CLOCK_EXPIRES = "processing_expires"
"""Columns of the table, there only if a state has a time to live, by event time or by the clock."""
_RECHECK_MIN = 1 << 10
WOKEN_MAX = 1 << 10
"""How many rows come back at a time because a timer is due, or something has expired."""
_BY_EVENT, _BY_CLOCK, _EXPIRING, _EXPIRING_BY_CLOCK = range(4)
"""The kinds of times at which rows come back by themselves."""


class KeyMemory:
    """The table of one subtask. A key that remembers nothing and has no timers costs nothing after a while.

    `forget`, `make_room` and `freeze` renumber rows: nobody may hold on to their numbers meanwhile.
    """

    def __init__(
        self,
        key_columns: Sequence[str],
        key_schema: pa.Schema,
        states: Mapping[str, RowValues],
    ) -> None:
        self.states = DeclaredStates(states)
        self.timers = KeyTimers()
        self.clock_timers = KeyTimers(may_be_left_out=True)
        columns: dict[str, RowColumn] = {"state": self.states} if states else {}
        expiring = {name: state for name, state in states.items() if isinstance(state, ExpiringValues)}
        self._expiries = [
            Expiries(name, chosen)
            for name, is_by_clock in ((EXPIRES, False), (CLOCK_EXPIRES, True))
            if (chosen := {n: state for n, state in expiring.items() if state.ttl.is_by_clock == is_by_clock})
        ]
        columns |= {expiries.name: expiries for expiries in self._expiries}  # behind the states: see restore
        columns |= {"timers": self.timers, CLOCK_TIMERS: self.clock_timers}
        self._sweeps = [Sweep(state) for state in expiring.values()]
        self._expiring = list(expiring.values())
        self._layout = Layout(key_columns, key_schema, columns)
        self.table = tracked_table(self._layout)
        self._overflow: Overflow = InMemory(self.table)
        self._is_empty = GrowableColumn(np.bool_)
        """The rows that were found to remember nothing since their key came last."""

    def open(self, context: OperatorContext) -> None:
        """Called once, while nothing is remembered."""
        context.begin(self.table)
        self._overflow = context.state.overflow(self.table, self._layout)

    def close(self) -> None:
        self._overflow.close()

    def find_or_add(self, keys: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        """The row of each key, of which a record is here."""
        rows = self._bringing(lambda: self._overflow.find_or_add(keys, key_hash))
        self._is_empty.grow(self.table.size)
        self._is_empty.values[rows] = False
        return rows

    def restore(self, state: RestoredState) -> None:
        """Take in what a snapshot has; the cursor knows how far time has come. Raises UserFunctionError if a
        value without a time to live gets one, and no time has come."""
        for piece in state.batches(TABLE):
            rows = self._overflow.load(piece)
            for expiries in self._expiries:
                for name, values in expiries.without_times(piece.schema).items():
                    self._begin(name, values, rows)
            self.make_room()

    def due_until(self, until_ms: int, is_by_clock: bool) -> int:
        """Up to when timers may fire, at most to this time: the rows of all earlier ones are in memory when
        it returns. The next ones come when those have fired."""
        kind, timers = (_BY_CLOCK, self.clock_timers) if is_by_clock else (_BY_EVENT, self.timers)
        first_ms = self._overflow.first_wake(kind)
        if first_ms is None or first_ms > until_ms:
            return until_ms
        if timers.first_ms is not None and timers.first_ms <= first_ms:
            return first_ms
        reached = until_ms

        def wake() -> Indices:
            nonlocal reached
            rows, reached = self._overflow.wake(kind, until_ms, WOKEN_MAX)
            return rows

        self._bringing(wake)
        return reached

    def wake_at_ms(self) -> int | None:
        """The first timer by the clock, at the earliest."""
        away = self._overflow.first_wake(_BY_CLOCK)
        here = self.clock_timers.first_ms
        return min((ms for ms in (away, here) if ms is not None), default=None)

    def make_room(self) -> None:
        """Let keys go that were not seen for long, if the memory is full. Raises StateFullError if they can
        go nowhere."""
        overflow = self._overflow
        while overflow.needs_room():
            self._look_at(self.table.take_changed())
            is_empty = self._is_empty.used()
            going = overflow.going()
            going = going[~is_empty[going]]
            wakes = {
                _BY_EVENT: self.timers.first_of(going),
                _BY_CLOCK: self.clock_timers.first_of(going),
                _EXPIRING: self._expire_first(going, is_by_clock=False),
                _EXPIRING_BY_CLOCK: self._expire_first(going, is_by_clock=True),
            }
            for timers in (self.timers, self.clock_timers):
                timers.away += timers.count_of(going)
            self._renumbered(overflow.make_room(going, wakes, np.flatnonzero(is_empty)))

    def forget(self) -> None:
        """Do a piece of forgetting what has expired; after a pass, let go of keys that remember nothing."""
        self._expire_away()
        for sweep in self._sweeps:
            forgotten = sweep.piece()
            if forgotten is not None:
                self.table.note_changed(forgotten)
                self._look_at(forgotten)
                if sweep.is_between_passes:
                    self._let_go()

    def freeze(self, max_parallelism: int) -> FrozenRows:
        """The rows as they are now, but for what has expired. Of keys that remember nothing only those are
        found that have changed since the last time, or were swept."""
        self.forget()
        self._look_at(self.table.take_changed())
        self._let_go()
        return self._overflow.freeze(max_parallelism)

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        """The rows of these keys as a snapshot would have them now; see Overflow."""
        return self._overflow.peek(asked, max_parallelism)

    def _look_at(self, rows: Indices) -> None:
        """See which of these rows remember nothing."""
        empty = self.states.empty_of(rows.tolist())
        for timers in (self.timers, self.clock_timers):
            empty = timers.empty_of(empty)
        self._is_empty.grow(self.table.size)
        self._is_empty.values[np.array(empty, np.int64)] = True

    def _let_go(self) -> None:
        """Let go of keys that remember nothing, when they are at least half."""
        empty = np.flatnonzero(self._is_empty.used())
        if len(empty) >= _RECHECK_MIN and 2 * len(empty) >= self.table.size:
            self._overflow.remove(empty)
            kept = self._overflow.compact()
            assert kept is not None, "half of the rows were removed"
            self._renumbered(kept)

    def _renumbered(self, kept: Indices) -> None:
        self._is_empty.keep(kept)
        for sweep in self._sweeps:
            sweep.renumbered()

    def _bringing(self, bring: Callable[[], Indices]) -> Indices:
        """Rows may come back with this call, and their timers."""
        kinds = self.timers, self.clock_timers
        before = [timers.in_memory for timers in kinds]
        rows = bring()
        for timers, here in zip(kinds, before, strict=True):
            timers.away -= timers.in_memory - here
        return rows

    def _expire_first(self, rows: Indices, is_by_clock: bool) -> Int64s:
        """When something in these rows, which are to go, expires first."""
        first = np.full(len(rows), NO_WAKE_MS)
        for state in self._expiring:
            if state.ttl.is_by_clock == is_by_clock:
                first = np.minimum(first, state.column().take(rows))
        return first

    def _expire_away(self) -> None:
        """Bring a piece of the rows back in which something has expired, and forget it."""
        overflow = self._overflow
        for kind, is_by_clock in ((_EXPIRING, False), (_EXPIRING_BY_CLOCK, True)):
            states = [state for state in self._expiring if state.ttl.is_by_clock == is_by_clock]
            first_ms, passed_ms = overflow.first_wake(kind), states[0].passed_ms if states else NO_WAKE_MS
            if not states or first_ms is None or first_ms > passed_ms:
                continue

            def wake(kind: int = kind, passed_ms: int = passed_ms) -> Indices:
                return overflow.wake(kind, passed_ms, WOKEN_MAX)[0]

            rows = self._bringing(wake)
            for state in states:
                state.expire(rows[state.column().take(rows) <= passed_ms], passed_ms)
            self._look_at(rows)

    def _begin(self, name: str, values: ExpiringValues, rows: Indices) -> None:
        has_some = any(values.values[row] is not None for row in rows.tolist())
        if has_some and values.passed_ms == WATERMARK_MIN_MS:
            raise UserFunctionError(
                f"state {name!r} was written without a ttl, and has one now, but the checkpoint has no event "
                "time for it to begin at: start once without ttl=, and with it from a later checkpoint"
            )
        values.begin(rows)
