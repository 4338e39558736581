"""The state of one operator in a savepoint that is made: read from its base, and written anew."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import MANIFEST_VERSION, CheckpointManifest, StateHandle
from onceflow.runtime.checkpoint.savepoints.copying import copy_state
from onceflow.runtime.checkpoint.savepoints.reading_pins import unpin
from onceflow.runtime.checkpoint.savepoints.savepoint import Savepoint
from onceflow.runtime.checkpoint.savepoints.taking import committed_checkpoint, finish_copy
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.state_paths import STATE_FOLDER
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import UsageError
from onceflow.runtime.records import WATERMARK_MIN_MS
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.key_groups import (
    KEY_GROUPS_MAX,
    can_be_max_parallelism,
    key_group_range,
    key_groups_of,
)
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN, FrozenState
from onceflow.runtime.state_tables.reader import pinned_manifest
from onceflow.runtime.state_tables.rows_of_keys import identities
from onceflow.runtime.state_tables.shapes import KEYS_TABLE
from onceflow.runtime.version import VERSION

PROCESS = "process"
"""The kind of operators whose state can be written: process functions."""
SUBTASKS = 8
"""How many parts the state of a new savepoint has; it can be restored at any parallelism."""
MAX_PARALLELISM = 128


@dataclass(frozen=True, slots=True)
class Begun:
    """What a new savepoint begins with, its files copied."""

    manifest: CheckpointManifest
    taken_of: str = ""


def begin(store: CheckpointStore, base: str | None, max_parallelism: int | None, savepoint_id: str) -> Begun:
    """Copy what the base has; None: begin with nothing. A file of which only the copy is whole is told on
    stderr. Raises UsageError for another `max_parallelism`, or for one that can't be."""
    if max_parallelism is not None and not can_be_max_parallelism(max_parallelism):
        raise UsageError(f"max_parallelism={max_parallelism!r}: it must be from 1 to {KEY_GROUPS_MAX}")
    if base is None:
        groups, now = max_parallelism or MAX_PARALLELISM, SystemClock().now_ms()
        parts = min(SUBTASKS, groups)
        return Begun(CheckpointManifest("state", savepoint_id, 1, 1, now, now, parts, groups))
    source, manifest, where, pin = pinned_manifest(base, _committed(base))
    try:
        if max_parallelism not in (None, manifest.max_parallelism):
            raise UsageError(
                f"{where} has max_parallelism {manifest.max_parallelism}, not {max_parallelism}: leave it out"
            )
        copied = copy_state(source, store, manifest, f"{STATE_FOLDER}/{savepoint_id}.1", on_healed=_say)
    finally:
        if pin is not None:
            unpin(source, pin)
    return Begun(copied, base)


def _say(problem: str) -> None:
    sys.stderr.write(f"{problem}\n")


def _committed(base: str) -> int | None:
    """The checkpoint of a folder that a savepoint may be taken of: no output of it can be lost. None: the
    base is a savepoint, which was taken of such a one."""
    store = open_store(base)
    view = read_log(store)
    return committed_checkpoint(store, view).checkpoint_id if view.entries or view.corrupt else None


def stored_rows(
    store: CheckpointStore, manifest: CheckpointManifest, uid: str, table: str = KEYS_TABLE
) -> pa.Table | None:
    """All rows that the base has of this operator."""
    files = StateFiles(store, manifest.attempt)
    batches = [
        batch
        for handle in manifest.states
        if handle.uid == uid
        for batch in files.read(handle, handle.key_groups).batches(table)
    ]
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default") if tables else None


@dataclass(frozen=True, slots=True)
class OperatorState:
    """All that one operator keeps."""

    uid: str
    described: StateDescription
    rows: pa.RecordBatch
    table: str = KEYS_TABLE

    def written(
        self, store: CheckpointStore, manifest: CheckpointManifest, attempt: int, checkpoint_id: int
    ) -> list[StateHandle]:
        """The rows in files of this attempt and checkpoint, in as many parts, and under the notes, as this
        manifest has what the operator kept."""
        old = [handle for handle in manifest.states if handle.uid == self.uid]
        at = replace(manifest, attempt=attempt, checkpoint_id=checkpoint_id)
        return _written(store, at, self, old)


def finish(store: CheckpointStore, begun: Begun, state: OperatorState, savepoint_id: str) -> str:
    """Write this as all that the operator keeps, and the savepoint. Returns its id."""
    manifest = begun.manifest
    states = [handle for handle in manifest.states if handle.uid != state.uid]
    states += state.written(store, manifest, manifest.attempt, manifest.checkpoint_id)
    manifest = replace(
        manifest,
        states=states,
        operators={**manifest.operators, state.uid: state.described},
        total_bytes=sum(handle.size for handle in states),
    )
    replaced = begun.manifest.paths() - manifest.paths()
    store.delete([each for path in replaced for each in (path, copy_path(path))])
    now = SystemClock().now_ms()
    taken = Savepoint(MANIFEST_VERSION, savepoint_id, begun.taken_of, "", VERSION, now, manifest)
    return finish_copy(store, taken).savepoint_id


def row_batch(
    keys: pa.RecordBatch, columns: Sequence[pa.Array], fields: Sequence[pa.Field], others: dict[str, pa.Array]
) -> pa.RecordBatch:
    """Rows as state files have them: key, states, and what else is kept of each key."""
    of_keys = pa.StructArray.from_arrays(
        keys.columns, fields=[field.with_nullable(True) for field in keys.schema]
    )
    state = pa.StructArray.from_arrays(list(columns), fields=list(fields))
    named = {"key": of_keys, "state": state, **others}
    return pa.RecordBatch.from_arrays(list(named.values()), names=list(named))


def _written(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    state: OperatorState,
    old: Sequence[StateHandle],
) -> list[StateHandle]:
    """The rows in files, one for each subtask, under the notes that the base has of the operator."""
    rows = state.rows
    hashes = identities(pa.RecordBatch.from_struct_array(rows.column("key")))["hash"]
    groups = key_groups_of(np.ascontiguousarray(hashes), manifest.max_parallelism)
    column = pa.field(KEY_GROUP_COLUMN, pa.uint16(), nullable=False)
    files, handles = StateFiles(store, manifest.attempt), []
    ranges = [handle.key_groups for handle in old] or [
        key_group_range(manifest.max_parallelism, manifest.parallelism, n)
        for n in range(manifest.parallelism)
    ]
    is_left = np.ones(len(groups), np.bool_)
    for subtask, mine in enumerate(ranges):  # two may have a group in common (savepoints/regrouping.py)
        chosen = np.flatnonzero(is_left & (groups >= mine.start) & (groups < mine.stop))
        is_left[chosen] = False
        part = rows.take(pa.array(chosen))
        whole = pa.RecordBatch.from_arrays(
            [pa.array(groups[chosen], pa.uint16()), *part.columns], schema=pa.schema([column, *part.schema])
        )
        notes = dict(old[subtask].meta) if old else _notes(state.table, mine)
        frozen = FrozenState(mine, {state.table: _Rows(whole)}, notes)
        handles.append(files.write(manifest.checkpoint_id, state.uid, subtask, frozen))
    return handles


def _notes(table: str, groups: range) -> dict[str, Json]:
    """What an operator notes of event time before any has come."""
    if table == KEYS_TABLE:
        return {"watermark": WATERMARK_MIN_MS}
    return {"watermarks": [[groups.start, groups.stop, WATERMARK_MIN_MS]]}


def nulls(rows: Any) -> pa.Array:
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
