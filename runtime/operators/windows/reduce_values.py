"""ReduceValues: what windows compute by the user's reduce function, and the calls of that function."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from onceflow.runtime.operators.user_state import EMPTY, RecordRows, UserColumn
from onceflow.runtime.records import Indices, Int64s, Records
from onceflow.runtime.types.user_functions import read_records, user_function_error


class ReduceValues:
    """WindowValues of `reduce(fn)`: the record so far of each row."""

    def __init__(self, uid: str, fn: Callable[[Any, Any], Any], rows: RecordRows) -> None:
        self._uid = uid
        self._fn = fn
        self.functions = [fn]
        self._rows = rows
        self._column = UserColumn(rows.as_user_type())
        self.grow = self._column.grow
        self.clear = self._column.clear
        self.keep = self._column.keep
        self.freeze = self._column.freeze
        self.load = self._column.load

    def update(self, records: Records, rows: Indices) -> None:
        typed = read_records(self._uid, self._rows, records)
        for _ in reduce_each(self._uid, self._fn, self._column.values, rows, typed, records):
            pass

    def merge(self, into: Indices, rows: Indices) -> None:
        mine = self._column.values
        self._merge(into, mine, (mine[row] for row in rows.tolist()))

    def merged(self, rows: Indices, groups: Indices, size: int) -> ReduceValues:
        """`size` rows; each of `rows` is merged into the one that `groups` says, in their order."""
        fresh = ReduceValues(self._uid, self._fn, self._rows)
        fresh.grow(size)
        more = (self._column.values[row] for row in rows.tolist())
        if not self._column.is_immutable:
            more = (copy.deepcopy(value) for value in more)  # other windows need it too
        self._merge(groups, fresh._column.values, more)
        return fresh

    def _merge(self, into: Indices, values: list[Any], records: Iterable[Any]) -> None:
        merge, more = self._fn, None
        try:
            for row, more in zip(into.tolist(), records, strict=True):
                if more is not EMPTY:
                    values[row] = more if values[row] is EMPTY else merge(values[row], more)
        except Exception as error:
            raise user_function_error(self._uid, merge, error, None, 0, more) from error

    def results(self, keys: pa.RecordBatch, start: Int64s, end: Int64s, rows: Indices) -> pa.RecordBatch:
        mine = self._column.values
        return self._rows.write([mine[row] for row in rows.tolist()])


def reduce_each(
    uid: str,
    fn: Callable[[Any, Any], Any],
    values: list[Any],
    rows: Indices,
    typed: list[Any],
    records: Records,
) -> Iterator[Any]:
    """Set each row's row to fn(value so far, record), or to the first record; yields each new value,
    which the next call of fn may change if its type allows it."""
    for n, row in enumerate(rows.tolist()):
        current, record = values[row], typed[n]
        try:
            values[row] = value = record if current is EMPTY else fn(current, record)
        except Exception as error:
            raise user_function_error(uid, fn, error, records, n, record) from error
        yield value
