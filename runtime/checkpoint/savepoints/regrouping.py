"""State of a savepoint under another max_parallelism: every row gets the key group that its key has now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle, meta_as_json
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.contracts import Json
from onceflow.runtime.records import UInt64s
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN, Batches, FrozenState
from onceflow.runtime.state.plain_values import column_of_nothing

RUNS, RUNS_OF = "watermarks", "of_key_groups"
"""Notes of windows: runs of key groups, and of how many there are, if not the job's (`lateness.py`)."""


@dataclass(frozen=True, slots=True)
class Regrouping:
    """State that was kept under one number of key groups, for another."""

    before: int
    after: int

    @property
    def is_none(self) -> bool:
        return self.before == self.after

    def renumbered(self, manifest: CheckpointManifest) -> CheckpointManifest:
        """The manifest with the key groups of its parts as they are called now, and its files as they were.

        Two parts may have a group in common where there was a border between two groups that is none now:
        each has the rows of its own keys in it. What parts note by key groups goes on to mean the old ones.
        """
        states = [
            structs.replace(handle, key_groups_start=groups.start, key_groups_end=groups.stop, meta_json=meta)
            for handle in manifest.states
            for groups, meta in [(self._groups(handle.key_groups), self._meta(handle))]
        ]
        parallelism = min(manifest.parallelism, self.after)
        return replace(manifest, states=states, parallelism=parallelism, max_parallelism=self.after)

    def copied(
        self,
        source: CheckpointStore,
        target: CheckpointStore,
        manifest: CheckpointManifest,
        attempt: int,
        on_healed: Callable[[str], None] = lambda problem: None,
    ) -> CheckpointManifest:
        """What `renumbered` gives, with its state in files of this attempt and checkpoint 0 in `target`.

        Rows are read and written in pieces, and checked as a restore checks them: raises
        CorruptCheckpointError as `StateFiles.read` does. `on_healed`: see there.
        """
        files, written = StateFiles(source, manifest.attempt, on_healed), StateFiles(target, attempt)
        states = []
        for handle, now in zip(manifest.states, self.renumbered(manifest).states, strict=True):
            described = manifest.operators.get(handle.uid)
            restored = files.read(handle, handle.key_groups)
            tables = {
                name: _Rows(rows, handle.rows[name], self, described, _schema(rows, len(handle.files[name])))
                for name, rows in restored.tables.items()
                if handle.rows[name]
            }
            frozen = FrozenState(now.key_groups, tables, now.meta)
            states.append(written.write(0, now.uid, now.subtask, frozen))
        size = sum(handle.size for handle in states)
        renumbered = self.renumbered(manifest)
        return replace(renumbered, states=states, committables=(), total_bytes=size)

    def groups_of(self, batch: pa.RecordBatch, state: StateDescription | None) -> npt.NDArray[np.uint16]:
        """The key groups of these rows now. Rows without a key are where the key group is that was theirs."""
        hashes = _hashes(batch, state)
        if hashes is not None:
            return key_groups_of(hashes, self.after)
        groups: npt.NDArray[np.uint32] = batch.column(KEY_GROUP_COLUMN).to_numpy().astype(np.uint32)
        return np.asarray(groups * np.uint32(self.after) // np.uint32(self.before), np.uint16)

    def _groups(self, groups: range) -> range:
        """All groups that keys of these have now."""
        return range(groups.start * self.after // self.before, -(-groups.stop * self.after // self.before))

    def _meta(self, handle: StateHandle) -> msgspec.Raw:
        meta: dict[str, Json] = dict(handle.meta)
        return meta_as_json({RUNS_OF: self.before, **meta}) if RUNS in meta else handle.meta_json


@dataclass(slots=True)
class _Rows:
    """FrozenRows of a table that is read once, from its first row to its last."""

    read: Batches
    count: int
    regrouping: Regrouping
    state: StateDescription | None
    schema: pa.Schema
    _left: Iterator[pa.RecordBatch] | None = None
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    """What was read and is not written yet."""

    def __len__(self) -> int:
        return self.count

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        batches = self._left = self.read() if self._left is None else self._left
        while sum(batch.num_rows for batch in self._waiting) < end - first:
            self._waiting.append(_completed(next(batches), self.schema))
        rows = one_batch(pa.Table.from_batches(self._waiting))
        self._waiting = [rows.slice(end - first)]
        mine = rows.slice(0, end - first)
        groups = pa.array(self.regrouping.groups_of(mine, self.state), pa.uint16())
        return mine.set_column(0, mine.schema.field(0), groups)


def _schema(read: Batches, files: int) -> pa.Schema:
    """The columns of a table's rows, which are in so many files. Each file leaves out the columns in which it
    has nothing, so several are read twice: a table is written with one schema."""
    return next(read()).schema if files == 1 else pa.unify_schemas([batch.schema for batch in read()])


def _completed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema == schema:
        return batch
    there, rows = set(batch.schema.names), batch.num_rows
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in there
        else column_of_nothing(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _hashes(batch: pa.RecordBatch, state: StateDescription | None) -> UInt64s | None:
    """The hashes of the rows' keys; None: they have none."""
    names = batch.schema.names
    if "key" in names:
        keys = pa.RecordBatch.from_struct_array(batch.column("key"))
        return hash_keys(keys, keys.schema.names)
    if "is_right" in names:
        assert state is not None, "joins are described"
        left, right = ([key.name for key in keys] for keys in (state.keys, state.right_keys))
        is_right = batch.column("is_right").to_numpy(zero_copy_only=False)
        return np.where(is_right, _hashes_in(batch, "right", right), _hashes_in(batch, "left", left))
    if "key_hash" in names:
        return np.asarray(batch.column("key_hash").to_numpy())
    return None


def _hashes_in(batch: pa.RecordBatch, side: str, keys: Sequence[str]) -> UInt64s:
    columns = [pc.struct_field(batch.column(side), key) for key in keys]
    return hash_keys(pa.RecordBatch.from_arrays(columns, names=list(keys)), keys)
