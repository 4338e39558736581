"""Rolling reduce: per key the result so far, sent on after every record."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.operators.describe import key_columns, record_reader, reduce_part
from onceflow.runtime.operators.operator import FrozenState, Operator, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.user_state import RecordRows, UserColumn
from onceflow.runtime.operators.windows.reduce_values import reduce_each
from onceflow.runtime.operators.windows.window import check_keys
from onceflow.runtime.records import Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.overflow import InMemory, Overflow, make_room
from onceflow.runtime.state.tables import Layout, keyed_table
from onceflow.runtime.types.user_functions import function_name, read_records

TABLE = "reduced"


@dataclass(frozen=True)
class RollingReduce:
    """The user's `fn(so_far, record) -> record` per key: `key_by(...).reduce(fn)`.

    Rows out: one for each row in, the result after it (for a key's first record the record itself),
    with the columns of the record type, the event time and the origin of the row. Raises GraphError.
    """

    uid: str
    key_columns: tuple[str, ...]
    fn: Callable[[Any, Any], Any]
    input_schema: pa.Schema
    record_type: type | None = None

    def __post_init__(self) -> None:
        check_keys(self.key_columns, self.input_schema, self.uid)
        assert self._rows is not None

    @property
    def output_schema(self) -> pa.Schema:
        return self._rows.schema

    @property
    def description(self) -> StateDescription:
        keys = key_columns(self.key_columns, self.input_schema)
        return StateDescription("reduce", TABLE, keys, (reduce_part(self.fn, self.output_schema),))

    @property
    def readers(self) -> Readers:
        return record_reader(self._rows.reads)

    def create(self) -> Operator:
        """A fresh operator for one subtask and attempt."""
        return ReduceOperator(self.uid, self.key_columns, self.fn, self.input_schema, self._rows)

    @cached_property
    def _rows(self) -> RecordRows:
        """Made when the graph is built, and shipped."""
        what = f"operator {self.uid!r}: {function_name(self.fn)}"
        return RecordRows(self.input_schema, self.record_type, what)


class ReduceOperator:
    """One subtask of a rolling reduce."""

    def __init__(
        self,
        uid: str,
        key_columns: Sequence[str],
        fn: Callable[[Any, Any], Any],
        schema: pa.Schema,
        rows: RecordRows,
    ) -> None:
        self._uid = uid
        self._fn = own_instance(fn, uid)
        self._rows = rows
        self._reduced = UserColumn(rows.as_user_type())
        self._layout = Layout(key_columns, schema, {"value": self._reduced})
        self._table = keyed_table(self._layout)
        self._overflow: Overflow = InMemory(self._table)

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        context.begin(self._table)
        self._overflow = context.state.overflow(self._table, self._layout)
        context.open_function(self._fn)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for piece in state.batches(TABLE):
                self._overflow.load(piece)
                make_room(self._overflow)

    def on_records(self, records: Records) -> None:
        assert records.key_hash is not None, "a reduce comes after a key_by"
        if not len(records):
            return
        rows = self._overflow.find_or_add(records.batch, records.key_hash)
        typed = read_records(self._uid, self._rows, records)
        reduced = reduce_each(self._uid, self._fn, self._reduced.values, rows, typed, records)
        results = list(reduced) if self._rows.is_immutable else [copy.deepcopy(record) for record in reduced]
        self._out.emit(Records(self._rows.write(results), records.event_time, None, records.origin))
        make_room(self._overflow)

    def on_watermark(self, time_ms: int) -> None:
        pass

    def snapshot(self) -> FrozenState:
        rows = self._overflow.freeze(self._context.max_parallelism)
        return FrozenState(self._context.key_groups, {TABLE: rows})

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._overflow.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._overflow.close()
