"""Live tables: the state of an operator that runs, as a reader of state sees it.

The slot makes rows of what its operator remembers, the driver knows of which keys and columns they are, and
who asked puts them together. A table is as its checkpoint would have it (`shapes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.records import Indices
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state_tables.chosen_keys import ChosenKeys, key_of_text
from onceflow.runtime.state_tables.indexed_rows import IndexedRows
from onceflow.runtime.state_tables.listing import shapes_of_operator
from onceflow.runtime.state_tables.reader import UnknownTableError
from onceflow.runtime.state_tables.shapes import Shape

KEYS_MAX = 1_000
"""How many keys one question may have: a slot answers between two batches, and a barrier waits meanwhile."""


def live_shape(states: Mapping[str, StateDescription | None], uid: str, state: str) -> Shape:
    """The table of this state. `states`: what each operator of the job keeps. Raises UnknownTableError for
    what is not there, UsageError for what can't be asked."""
    kept = {each: described for each, described in states.items() if described is not None}
    if uid not in kept:
        near = nearest(uid, kept)
        raise UnknownTableError(f"the job keeps no state for {uid!r}{near}; use one of {sorted(kept)}")
    shapes = {shape.state: shape for shape in shapes_of_operator(uid, kept[uid])}
    if state not in shapes:
        near = nearest(state, shapes)
        raise UnknownTableError(f"{uid!r} has no state {state!r}{near}; use one of {list(shapes)}")
    shape = shapes[state]
    if not shape.key_columns(None).names:
        raise UsageError(
            f"state {state!r} of {uid!r} has no key: ask for its last checkpoint, by onceflow state"
        )
    return shape


def keys_of_question(shape: Shape, keys: Sequence[Any], are_texts: bool) -> pa.RecordBatch:
    """The keys of a question as key columns. Raises UsageError for what is none, and for too many."""
    if len(keys) > KEYS_MAX:
        raise UsageError(f"a live question has {len(keys):,} keys: ask for {KEYS_MAX:,} at most at a time")
    columns, where = shape.key_columns(None), f"state {shape.state!r} of {shape.uid!r}"
    wanted = [key_of_text(str(key), columns.names) for key in keys] if are_texts else keys
    return ChosenKeys(wanted, columns, 1, where).batch


def slots_of(hashes: Any, max_parallelism: int, parallelism: int) -> dict[int, Indices]:
    """Which of the keys each slot has, by their places."""
    groups = key_groups_of(hashes, max_parallelism).astype(np.int64)
    owners = groups * parallelism // max_parallelism
    return {int(slot): np.flatnonzero(owners == slot) for slot in np.unique(owners)}


def rows_of(shape: Shape, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows of a table, of what an operator that runs remembers."""
    found = [
        pa.Table.from_batches([rows])
        for batch in batches
        if batch.num_rows
        for rows in shape.rows(batch, shape.schema(batch.schema))
    ]
    return pa.concat_tables(found, promote_options="default") if found else pa.table({})


def by_key(tables: Sequence[pa.Table], keys: pa.RecordBatch) -> list[list[dict[str, Any]]]:
    """A list of rows for each key, in their order."""
    found = [table for table in tables if table.num_rows]
    rows: list[list[dict[str, Any]]] = [[] for _ in range(keys.num_rows)]
    if found:
        table = pa.concat_tables(found, promote_options="default")
        columns = pa.schema([table.schema.field(name) for name in keys.schema.names])
        places, there = IndexedRows(table, columns, "the question").find(keys.to_pylist())
        for place, row in zip(places.tolist(), there.to_pylist(), strict=True):
            rows[place].append(row)
    return rows


def as_bytes(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def of_bytes(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
