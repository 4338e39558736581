"""How rows of state files become rows of the tables that a reader sees.

A file has a row for each key with all that is remembered of it; a reader sees a table for each state: one row
for a value, for each element of a list, each entry of a map, each timer. Columns whose names are a key's get
an underscore behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.records import Indices
from onceflow.runtime.state.description import StateDescription, StatePart
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state_tables.type_texts import type_of_text

KEYS_TABLE = "keys"
"""The table of process functions (`operators/describe.py`)."""
ROWS_TABLE = "rows"
"""The table of joins."""
LISTS_TABLE = "lists"
"""The table of functions without a key (`operators/function_state.py`)."""
SPLIT_LIST, UNION_LIST = "split list", "union list"
TIMERS = "timers"
BROADCAST = "broadcast"
"""The kind of a state that all subtasks have alike, in the manifest itself."""
_INT = pa.int64()
_LEADING: Mapping[str, Mapping[str, pa.DataType]] = {
    "windows": {"window_start": _INT},
    "panes": {"pane_start": _INT},
    "spans": {"window_start": _INT, "window_end": _INT},
    "counts": {"rows": _INT},
    "count_panes": {"first": _INT, "rows": _INT},
    ROWS_TABLE: {"is_right": pa.bool_(), "event_time": _INT},
}
"""The columns between the key and what is remembered, of a table of which there is no file."""
_FLAT = ("list", "map", SPLIT_LIST, UNION_LIST)
_TIMER_COLUMNS = (("timers", "event"), ("processing_timers", "processing"))


@dataclass(frozen=True)
class Shape:
    """A table as a reader sees it. `table`: the one in the files; `part`: the declared state that it is of;
    None: all of a row, or with `is_timers` its timers."""

    uid: str
    state: str
    kind: str
    table: str
    description: StateDescription | None
    part: StatePart | None = None
    is_timers: bool = False

    def key_columns(self, stored: pa.Schema | None) -> pa.Schema:
        """The columns of the key, in their order; none if rows have no key. `stored`: as files have the
        table."""
        if stored is not None and "key" in stored.names and pa.types.is_struct(stored.field("key").type):
            return pa.schema([field.with_nullable(True) for field in stored.field("key").type])
        described = () if self.description is None else self.description.keys
        return pa.schema([pa.field(key.name, type_of_text(key.type)) for key in described])

    def schema(self, stored: pa.Schema | None) -> pa.Schema:
        """The columns of the rows; all may be null, so that one schema fits every file."""
        keys = self.key_columns(stored)
        fields = {**_named(keys, dict.fromkeys(keys.names)), **_own(self._values(stored), keys)}
        return pa.schema([pa.field(name, of) for name, of in fields.items()])

    def own_names(self, columns: Sequence[str], keys: pa.Schema) -> list[str]:
        """What these columns of the files are called beside those of the key."""
        return list(_own(dict.fromkeys(columns), keys))

    def keys(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The key of each row as files have it; None: rows have none."""
        if "key" in batch.schema.names:
            return pa.RecordBatch.from_struct_array(batch.column("key"))
        if self.table != ROWS_TABLE or self.description is None or not self.description.keys:
            return None
        names = zip(self.description.keys, self.description.right_keys, strict=True)
        is_right, columns = batch.column("is_right"), {}
        for left, right in names:
            mine = pc.struct_field(batch.column("left"), left.name)
            other = pc.struct_field(batch.column("right"), right.name)
            columns[left.name] = pc.if_else(is_right, other.cast(mine.type), mine)
        return pa.RecordBatch.from_pydict(columns)

    def rows(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows that a reader sees of these of a file. `schema`: of all files, as `schema` gave it."""
        keys = self.keys(batch)
        if self.is_timers:
            for column, kind in _TIMER_COLUMNS:
                if column in batch.schema.names:
                    rows, times = _flat(batch.column(column))
                    kinds = pa.repeat(pa.scalar(kind), len(rows))
                    yield _batch(keys, rows, {"time": times, "kind": kinds}, schema)
        elif self.part is not None:
            rows, values = self._of_part(batch, self.part)
            yield _batch(keys, rows, values, schema)
        else:
            others = {n: batch.column(n) for n in batch.schema.names if n not in (KEY_GROUP_COLUMN, "key")}
            yield _batch(keys, None, others, schema, batch.num_rows)

    def _of_part(self, batch: pa.RecordBatch, part: StatePart) -> tuple[Indices, dict[str, pa.Array]]:
        column, expires = _field_of(batch, "state", part.name), self._expiries(batch, part)
        if column is None:
            return np.empty(0, np.int64), {}
        if part.kind in _FLAT:
            rows, items = _flat(column)
            values = _entries(items) if part.kind == "map" else {"position": _places(rows), "value": items}
            if part.kind in (SPLIT_LIST, UNION_LIST):
                values = {"subtask": batch.column("subtask").take(pa.array(rows)), **values}
            times = None if expires is None else _flat(expires)[1]
        else:
            rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            values = {"value": column.take(pa.array(rows))}
            times = None if expires is None else expires.take(pa.array(rows))
        if times is not None and len(times) == len(rows):
            values["expires"] = times
        return rows, values

    def _expiries(self, batch: pa.RecordBatch, part: StatePart) -> pa.Array | None:
        if part.ttl is None:
            return None
        return _field_of(batch, "processing_expires" if part.ttl.is_by_clock else "expires", part.name)

    def _values(self, stored: pa.Schema | None) -> dict[str, pa.DataType]:
        """The columns behind the key."""
        if self.is_timers:
            return {"time": _INT, "kind": pa.string()}
        if self.part is not None:
            return _part_columns(self.part, stored)
        if stored is not None:
            left_out = (KEY_GROUP_COLUMN, "key")
            return {field.name: field.type for field in stored if field.name not in left_out}
        return self._described()

    def _described(self) -> dict[str, pa.DataType]:
        parts = () if self.description is None else self.description.parts
        types = {part.name: type_of_text(part.type) for part in parts}
        leading = dict(_LEADING.get(self.table, {}))
        if self.description is None or not self.description.keys or self.table == ROWS_TABLE:
            return {**leading, **types}
        is_record = list(types) == ["record"]
        return {**leading, "value": types["record"] if is_record else pa.struct(list(types.items()))}


def _part_columns(part: StatePart, stored: pa.Schema | None) -> dict[str, pa.DataType]:
    of = type_of_text(part.type)
    if stored is not None and "state" in stored.names:
        state = stored.field("state").type
        if state.get_field_index(part.name) >= 0:
            of = state.field(part.name).type
    expires = {} if part.ttl is None else {"expires": _INT}
    if part.kind in ("map", BROADCAST):
        entry = of.value_type
        return {"map_key": entry.field("key").type, "value": entry.field("value").type, **expires}
    if part.kind == "list":
        return {"position": _INT, "value": of.value_type, **expires}
    if part.kind in (SPLIT_LIST, UNION_LIST):
        return {"subtask": pa.int32(), "position": _INT, "value": of.value_type}
    return {"value": of, **expires}


def entries_of(column: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a map that has no key: of broadcast state."""
    rows, items = _flat(column)
    return _batch(None, rows, _entries(items), schema)


def _named(keys: pa.Schema, names: Mapping[str, Any]) -> dict[str, pa.DataType]:
    return {name: keys.field(name).type for name in names}


def _own(columns: Mapping[str, Any], keys: pa.Schema) -> dict[str, Any]:
    """These columns under names that no key column has."""
    taken, own = set(keys.names), {}
    for name, column in columns.items():
        free = name
        while free in taken:
            free += "_"
        taken.add(free)
        own[free] = column
    return own


def _batch(
    keys: pa.RecordBatch | None,
    rows: Indices | None,
    columns: Mapping[str, pa.Array],
    schema: pa.Schema,
    count: int = 0,
) -> pa.RecordBatch:
    """Rows of these columns with the keys in `rows`; None: all, of which there are `count`."""
    count = count if rows is None else len(rows)
    named: dict[str, pa.Array] = {}
    if keys is not None:
        kept = keys if rows is None else keys.take(pa.array(rows))
        named = dict(zip(keys.schema.names, kept.columns, strict=True))
    named |= _own(columns, pa.schema([]) if keys is None else keys.schema)
    arrays = [_as(named.get(field.name), field.type, count) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as(array: pa.Array | None, of: pa.DataType, count: int) -> pa.Array:
    if array is None:
        return pa.nulls(count, of)
    return array if array.type == of else array.cast(of)


def _field_of(batch: pa.RecordBatch, column: str, name: str) -> pa.Array | None:
    if column not in batch.schema.names or batch.schema.field(column).type.get_field_index(name) < 0:
        return None
    return pc.struct_field(batch.column(column), name)


def _flat(lists: pa.Array) -> tuple[Indices, pa.Array]:
    """The items of lists, and in which row each was."""
    return pc.list_parent_indices(lists).to_numpy().astype(np.int64), pc.list_flatten(lists)


def _entries(items: pa.Array) -> dict[str, pa.Array]:
    return {"map_key": pc.struct_field(items, "key"), "value": pc.struct_field(items, "value")}


def _places(rows: Indices) -> pa.Array:
    """The place of each item in its list: `rows` is in order."""
    return pa.array(np.arange(len(rows)) - np.searchsorted(rows, rows, "left"))
