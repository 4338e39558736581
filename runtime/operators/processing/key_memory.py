"""KeyMemory: what a process function remembers, by key: declared states, timers, and when it is forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.operator import RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, UInt64s
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.expiries import Expiries
from onceflow.runtime.state.expiring_values import ExpiringValues
from onceflow.runtime.state.operator_state import FrozenRows
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


class KeyMemory:
    """The table of one subtask. A key that remembers nothing and has no timers costs nothing after a while.

    `forget` and `freeze` renumber rows: nobody may hold on to their numbers meanwhile.
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
        self.table = tracked_table(Layout(key_columns, key_schema, columns))
        self._is_empty = GrowableColumn(np.bool_)
        """The rows that were found to remember nothing since their key came last."""

    def find_or_add(self, keys: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        """The row of each key, of which a record is here."""
        rows = self.table.find_or_add(keys, key_hash)
        self._is_empty.grow(self.table.size)
        self._is_empty.values[rows] = False
        return rows

    def restore(self, state: RestoredState) -> None:
        """Take in what a snapshot has; the cursor knows how far time has come. Raises UserFunctionError if a
        value without a time to live gets one, and no time has come."""
        for piece in state.batches(TABLE):
            rows = self.table.load(piece)
            for expiries in self._expiries:
                for name, values in expiries.without_times(piece.schema).items():
                    self._begin(name, values, rows)

    def forget(self) -> None:
        """Do a piece of forgetting what has expired; after a pass, let go of keys that remember nothing."""
        for sweep in self._sweeps:
            forgotten = sweep.piece()
            if forgotten is not None:
                self._look_at(forgotten)
                if sweep.is_between_passes:
                    self._let_go()

    def freeze(self, max_parallelism: int) -> FrozenRows:
        """The rows as they are now, but for what has expired. Of keys that remember nothing only those are
        found that have changed since the last time, or were swept."""
        self.forget()
        self._look_at(self.table.take_changed())
        self._let_go()
        return self.table.freeze(max_parallelism)

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
            self.table.remove(empty)
            kept = self.table.compact()
            assert kept is not None, "half of the rows were removed"
            self._is_empty.keep(kept)
            for sweep in self._sweeps:
                sweep.renumbered()

    def _begin(self, name: str, values: ExpiringValues, rows: Indices) -> None:
        has_some = any(values.values[row] is not None for row in rows.tolist())
        if has_some and values.passed_ms == WATERMARK_MIN_MS:
            raise UserFunctionError(
                f"state {name!r} was written without a ttl, and has one now, but the checkpoint has no event "
                "time for it to begin at: start once without ttl=, and with it from a later checkpoint"
            )
        values.begin(rows)
