"""onceflow.write_state: a savepoint made of rows, or one with a state that is replaced."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import MANIFEST_VERSION, CheckpointManifest, StateHandle
from onceflow.runtime.checkpoint.savepoints.copying import copy_state
from onceflow.runtime.checkpoint.savepoints.reading_pins import unpin
from onceflow.runtime.checkpoint.savepoints.savepoint import Savepoint
from onceflow.runtime.checkpoint.savepoints.taking import check_is_free, committed_checkpoint, finish_copy
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.state_paths import STATE_FOLDER
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import WATERMARK_MIN_MS
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.description import KeyColumn, StateDescription, StatePart, type_text
from onceflow.runtime.state.key_groups import key_group_range, key_groups_of
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN, FrozenState
from onceflow.runtime.state_tables.reader import pinned_manifest
from onceflow.runtime.state_tables.rows_of_keys import grouped, identities, places
from onceflow.runtime.state_tables.shapes import KEYS_TABLE
from onceflow.runtime.state_tables.tight_types import usual_type
from onceflow.runtime.version import VERSION

PROCESS = "process"
"""The kind of operators whose state can be written: process functions."""
SUBTASKS = 8
"""In so many parts the state of a new savepoint is; it can be restored at any parallelism."""
MAX_PARALLELISM = 128


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a new savepoint begins with, its files copied."""

    manifest: CheckpointManifest
    taken_of: str = ""


@explained
def write_state(
    target: str,
    operator: str,
    state: str,
    rows: Any,
    *,
    keys: Sequence[str],
    kind: str = "value",
    base: str | None = None,
    max_parallelism: int | None = None,
) -> str:
    """Write a savepoint into the new folder or URL `target`, in which a state of a process function is made
    of these rows; `onceflow run --from` starts a job from it. Returns the savepoint's id.

    `rows`: a pyarrow.Table, record batches, or a DataFrame of polars. `keys`: the columns that are the key,
    in the order of key_by. `kind`: "value" (one row for each key: the column `value`, or else a struct of all
    columns that are no key), "list" (columns `position` and `value`) or "map" (`map_key` and `value`).

    `base`: a savepoint or checkpoint folder of which all else is copied; a state of that name is replaced
    there. Without one, `max_parallelism` has to be the job's (128 unless it says so). The rows are in memory.
    Raises UsageError if they are no such state, or do not fit the base.
    """
    store = open_store(target)
    check_is_free(store)
    where = f"state {state!r} of {operator!r}"
    distinct, values = grouped(_table(rows), keys, kind, where)
    savepoint_id = uuid.uuid4().hex[:16]
    begun = _begin(store, base, max_parallelism, savepoint_id)
    manifest = begun.manifest
    old = manifest.operators.get(operator)
    part = StatePart(state, kind, type_text(values.type), is_nullable=True)
    described = _described(old, distinct, part, where)
    merged = _merged(_stored(store, manifest, operator), distinct, values, state)
    mine = [handle for handle in manifest.states if handle.uid == operator]
    states = [handle for handle in manifest.states if handle.uid != operator]
    states += _written(store, manifest, operator, merged, mine)
    manifest = replace(
        manifest,
        states=states,
        operators={**manifest.operators, operator: described},
        total_bytes=sum(handle.size for handle in states),
    )
    replaced = begun.manifest.paths() - manifest.paths()
    store.delete([each for path in replaced for each in (path, copy_path(path))])
    taken = Savepoint(
        MANIFEST_VERSION,
        savepoint_id,
        begun.taken_of,
        "",
        VERSION,
        SystemClock().now_ms(),
        manifest,
    )
    return finish_copy(store, taken).savepoint_id


def _table(rows: Any) -> pa.Table:
    table: Any = rows
    if isinstance(rows, pa.RecordBatch):
        table = pa.Table.from_batches([rows])
    elif hasattr(rows, "to_arrow"):  # polars, whose texts are large ones
        table = rows.to_arrow()
    elif isinstance(rows, Iterable) and not isinstance(rows, pa.Table):
        table = pa.Table.from_batches(list(rows))
    if isinstance(table, pa.Table):
        return table.cast(pa.schema([field.with_type(usual_type(field.type)) for field in table.schema]))
    raise UsageError(f"rows is a {type(rows).__name__}: give a pyarrow.Table, record batches, or a DataFrame")


def _begin(
    store: CheckpointStore, base: str | None, max_parallelism: int | None, savepoint_id: str
) -> _Begun:
    if base is None:
        groups, now = max_parallelism or MAX_PARALLELISM, SystemClock().now_ms()
        parts = min(SUBTASKS, groups)
        return _Begun(CheckpointManifest("state", savepoint_id, 1, 1, now, now, parts, groups))
    source, manifest, where, pin = pinned_manifest(base, _committed(base))
    try:
        if max_parallelism not in (None, manifest.max_parallelism):
            raise UsageError(
                f"{where} has max_parallelism {manifest.max_parallelism}, not {max_parallelism}: leave it out"
            )
        copied = copy_state(source, store, manifest, f"{STATE_FOLDER}/{savepoint_id}.1")
    finally:
        if pin is not None:
            unpin(source, pin)
    return _Begun(copied, base)


def _committed(base: str) -> int | None:
    """The checkpoint of a folder that a savepoint may be taken of: no output of it can be lost. None: the
    base is a savepoint, which was taken of such a one."""
    store = open_store(base)
    view = read_log(store)
    return committed_checkpoint(store, view).checkpoint_id if view.entries or view.corrupt else None


def _described(
    old: StateDescription | None, keys: pa.RecordBatch, part: StatePart, where: str
) -> StateDescription:
    """The operator's state with this part."""
    columns = tuple(KeyColumn(field.name, type_text(field.type)) for field in keys.schema)
    if old is None:
        return StateDescription(PROCESS, KEYS_TABLE, columns, (part,))
    if old.table != KEYS_TABLE:
        raise UsageError(f"{where}: the base has a {old.kind} there: give a process function's uid")
    was, now = ([(key.name, key.type) for key in each] for each in (old.keys, columns))
    if was != now:
        shown = (", ".join(f"{name} {of}" for name, of in each) for each in (now, was))
        raise UsageError("{}: the key is {}, and in the base {}: cast the columns".format(where, *shown))
    kept = {each.name: each for each in old.parts}
    return structs.replace(old, parts=tuple({**kept, part.name: part}.values()))


def _stored(store: CheckpointStore, manifest: CheckpointManifest, uid: str) -> pa.Table | None:
    """All rows that the base has of this operator."""
    files = StateFiles(store, manifest.attempt)
    batches = [
        batch
        for handle in manifest.states
        if handle.uid == uid
        for batch in files.read(handle, handle.key_groups).batches(KEYS_TABLE)
    ]
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default") if tables else None


def _merged(rest: pa.Table | None, keys: pa.RecordBatch, values: pa.Array, state: str) -> pa.RecordBatch:
    """Rows as an operator keeps them: key, state, and what else the base has of each key."""
    new = identities(keys)
    if rest is None:
        return _row_batch(keys, [values], [pa.field(state, values.type)], {})
    old_rows = one_batch(rest)
    old_keys = pa.RecordBatch.from_struct_array(old_rows.column("key"))
    old = identities(old_keys)
    unique = np.unique(np.concatenate([old, new]))
    from_old, from_new = _nulls(places(old, unique)), _nulls(places(new, unique))
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
    return _row_batch(merged, columns, [*fields, pa.field(state, values.type)], others)


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


def _row_batch(
    keys: pa.RecordBatch, columns: Sequence[pa.Array], fields: Sequence[pa.Field], others: dict[str, pa.Array]
) -> pa.RecordBatch:
    of_keys = pa.StructArray.from_arrays(
        keys.columns, fields=[field.with_nullable(True) for field in keys.schema]
    )
    state = pa.StructArray.from_arrays(list(columns), fields=list(fields))
    named = {"key": of_keys, "state": state, **others}
    return pa.RecordBatch.from_arrays(list(named.values()), names=list(named))


def _written(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    uid: str,
    rows: pa.RecordBatch,
    old: Sequence[StateHandle],
) -> list[StateHandle]:
    """The rows in files, one for each subtask, under the notes that the base has of the operator."""
    meta: dict[str, Json] = dict(old[0].meta) if old else {"watermark": WATERMARK_MIN_MS}
    hashes = identities(pa.RecordBatch.from_struct_array(rows.column("key")))["hash"]
    groups = key_groups_of(np.ascontiguousarray(hashes), manifest.max_parallelism)
    column = pa.field(KEY_GROUP_COLUMN, pa.uint16(), nullable=False)
    files, handles = StateFiles(store, manifest.attempt), []
    ranges = [handle.key_groups for handle in old] or [
        key_group_range(manifest.max_parallelism, manifest.parallelism, n)
        for n in range(manifest.parallelism)
    ]
    for subtask, mine in enumerate(ranges):
        chosen = np.flatnonzero((groups >= mine.start) & (groups < mine.stop))
        part = rows.take(pa.array(chosen))
        whole = pa.RecordBatch.from_arrays(
            [pa.array(groups[chosen], pa.uint16()), *part.columns], schema=pa.schema([column, *part.schema])
        )
        notes = dict(old[subtask].meta) if old else meta
        frozen = FrozenState(mine, {KEYS_TABLE: _Rows(whole)}, notes)
        handles.append(files.write(manifest.checkpoint_id, uid, subtask, frozen))
    return handles


def _nulls(rows: Any) -> pa.Array:
    """Indices for `take`, null where there is no row."""
    return pa.array(rows, mask=rows < 0)


@dataclass(frozen=True, slots=True)
class _Rows:
    """FrozenRows of a batch."""

    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        return self.batch.slice(first, end - first)
