"""onceflow.write_state: a savepoint made of rows, or one with a state that is replaced."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.savepoints.taking import check_is_free
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import OnceflowError, UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.description import KeyColumn, StateDescription, StatePart, type_text
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state_tables.operator_rows import (
    PROCESS,
    OperatorState,
    begin,
    finish,
    nulls,
    row_batch,
    stored_rows,
)
from onceflow.runtime.state_tables.replaced_tables import replaced_table
from onceflow.runtime.state_tables.rows_of_keys import grouped, identities, places
from onceflow.runtime.state_tables.shapes import KEYS_TABLE
from onceflow.runtime.state_tables.tight_types import usual_type


@explained
def write_state(
    target: PathText,
    operator: str,
    state: str,
    rows: Any,
    *,
    keys: Sequence[str],
    kind: str = "value",
    base: PathText | None = None,
    max_parallelism: int | None = None,
) -> str:
    """Write a savepoint into the new folder or URL `target`, in which a state of an operator is made of these
    rows; `onceflow run --from` starts a job from it. Returns the savepoint's id.

    `rows`: a pyarrow.Table, record batches, or a DataFrame of polars. `keys`: the columns that are the key,
    in the order of key_by. `kind`: "value" (one row for each key: the column `value`, or else a struct of all
    columns that are no key), "list" (columns `position` and `value`) or "map" (`map_key` and `value`).

    `base`: a savepoint or checkpoint folder of which all else is copied; a state of that name is replaced
    there. `max_parallelism`: of a savepoint without one; the job may have another. The rows are in memory.

    The state of process functions needs no base. That of a reduce or of windows does, and `rows` are such as
    `read_state` gives of the table `state` (`reduced`, `windows`, `panes`, `spans`): all columns, and the
    rows of all keys. Raises UsageError if rows are no such state, or do not fit the base.
    """
    store = open_store(path_text(target))
    check_is_free(store)
    table, savepoint_id = _table(rows), uuid.uuid4().hex[:16]
    grouped_rows = None if base is not None else _grouped(table, operator, state, keys, kind)
    begun = begin(store, None if base is None else path_text(base), max_parallelism, savepoint_id)
    try:
        old = begun.manifest.operators.get(operator)
        if old is not None and old.table != KEYS_TABLE:
            made = replaced_table(store, begun.manifest, operator, state, table, keys, kind)
        else:
            given = grouped_rows or _grouped(table, operator, state, keys, kind)
            made = _with_state(store, begun.manifest, operator, state, kind, given)
    except OnceflowError:
        store.delete([each for path in begun.manifest.paths() for each in (path, copy_path(path))])
        raise
    return finish(store, begun, made, savepoint_id)


_Grouped = tuple[pa.RecordBatch, pa.Array]


def _grouped(table: pa.Table, operator: str, state: str, keys: Sequence[str], kind: str) -> _Grouped:
    return grouped(table, keys, kind, f"state {state!r} of {operator!r}")


def _with_state(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    operator: str,
    state: str,
    kind: str,
    given: _Grouped,
) -> OperatorState:
    """What a process function keeps with this state, its other ones as the base has them."""
    distinct, values = given
    part = StatePart(state, kind, type_text(values.type), is_nullable=True)
    old = manifest.operators.get(operator)
    described = _described(old, distinct, part, f"state {state!r} of {operator!r}")
    merged = _merged(stored_rows(store, manifest, operator), distinct, values, state)
    return OperatorState(operator, described, merged)


def _table(rows: Any) -> pa.Table:
    table: Any = rows
    if isinstance(rows, pa.RecordBatch):
        table = pa.Table.from_batches([rows])
    elif hasattr(rows, "to_arrow"):  # polars, whose texts are large ones
        table = rows.to_arrow()
    elif isinstance(rows, Iterable) and not isinstance(rows, pa.Table):
        table = pa.Table.from_batches(list(rows))
    if isinstance(table, pa.Table):
        usual = pa.schema([field.with_type(usual_type(field.type)) for field in table.schema])
        return table if usual == table.schema else table.cast(usual)
    raise UsageError(f"rows is a {type(rows).__name__}: give a pyarrow.Table, record batches, or a DataFrame")


def _described(
    old: StateDescription | None, keys: pa.RecordBatch, part: StatePart, where: str
) -> StateDescription:
    """The operator's state with this part."""
    columns = tuple(KeyColumn(field.name, type_text(field.type)) for field in keys.schema)
    if old is None:
        return StateDescription(PROCESS, KEYS_TABLE, columns, (part,))
    was, now = ([(key.name, key.type) for key in each] for each in (old.keys, columns))
    if was != now:
        shown = (", ".join(f"{name} {of}" for name, of in each) for each in (now, was))
        raise UsageError("{}: the key is {}, and in the base {}: cast the columns".format(where, *shown))
    kept = {each.name: each for each in old.parts}
    return structs.replace(old, parts=tuple({**kept, part.name: part}.values()))


def _merged(rest: pa.Table | None, keys: pa.RecordBatch, values: pa.Array, state: str) -> pa.RecordBatch:
    """Rows as an operator keeps them: key, state, and what else the base has of each key."""
    new = identities(keys)
    if rest is None:
        return row_batch(keys, [values], [pa.field(state, values.type)], {})
    old_rows = one_batch(rest)
    old_keys = pa.RecordBatch.from_struct_array(old_rows.column("key"))
    old = identities(old_keys)
    unique = np.unique(np.concatenate([old, new]))
    from_old, from_new = nulls(places(old, unique)), nulls(places(new, unique))
    arrays = [
        pc.coalesce(mine.take(from_new), theirs.take(from_old).cast(mine.type))
        for mine, theirs in zip(keys.columns, old_keys.columns, strict=True)
    ]
    merged = pa.RecordBatch.from_arrays(arrays, names=keys.schema.names)
    parts = old_rows.column("state")
    names = [field.name for field in parts.type if field.name != state]
    columns = [pc.struct_field(parts, name).take(from_old) for name in names]
    fields = [parts.type.field(name).with_nullable(True) for name in names]
    others = {
        name: column
        for name in old_rows.schema.names
        if name not in (KEY_GROUP_COLUMN, "key", "state")
        and (column := _others(old_rows.column(name).take(from_old), state)) is not None
    }
    columns.append(values.take(from_new))
    return row_batch(merged, columns, [*fields, pa.field(state, values.type)], others)


def _others(column: pa.Array, state: str) -> pa.Array | None:
    """Timers, of which a new key has none; and times of expiry, but for those of the replaced state."""
    of = column.type
    if pa.types.is_list(of):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pc.list_flatten(column), type=of)
    if not (names := [field.name for field in of if field.name != state]):
        return None
    return pa.StructArray.from_arrays([pc.struct_field(column, name) for name in names], names=names)
