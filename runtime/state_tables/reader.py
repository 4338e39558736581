"""onceflow.read_state: the state of a job as tables, without the job's code."""

from __future__ import annotations

import base64
import weakref
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

import pyarrow as pa

from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle
from onceflow.runtime.checkpoint.savepoints.folder import NoSavepointError, savepoint_at
from onceflow.runtime.checkpoint.savepoints.reading_pins import pin_to_read, unpin
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.state_tables.chosen_keys import ChosenKeys
from onceflow.runtime.state_tables.listing import shapes_of
from onceflow.runtime.state_tables.shapes import BROADCAST, Shape, entries_of
from onceflow.runtime.state_tables.source_offsets import OFFSETS, SCHEMA, offsets_of
from onceflow.runtime.state_tables.stored_schemas import stored_schema


class UnknownTableError(UsageError):
    """There is no such table; the sentence has the nearest name."""


class StoredState:
    """The state of a job as it was at a checkpoint: `onceflow.read_state` makes it.

    While it is open, its files are kept from the job's retention; `close`, the end of a `with`, or its own
    end lets them go.
    """

    def __init__(
        self, store: CheckpointStore, manifest: CheckpointManifest, where: str, pin_id: str | None = None
    ) -> None:
        """`store`: where the paths of the manifest begin. `pin_id`: of the pin to take away at its end."""
        self._store = store
        self._manifest = manifest
        self._where = where
        self._shapes = shapes_of(manifest)
        self._let_go = weakref.finalize(self, _let_go, store, pin_id)

    @property
    def checkpoint_id(self) -> int:
        """The number of the checkpoint that is read."""
        return self._manifest.checkpoint_id

    @property
    def completed_ms(self) -> int:
        """When the checkpoint was completed, in ms since 1970."""
        return self._manifest.completed_ms

    @property
    def job(self) -> str:
        """The name of the job."""
        return self._manifest.job

    @property
    def max_parallelism(self) -> int:
        """How many key groups there are."""
        return self._manifest.max_parallelism

    @property
    def offsets(self) -> dict[str, list[dict[str, Any]]]:
        """How far each source was read, by its uid: the rows of its table `offsets`."""
        return {uid: offsets_of(splits).to_pylist() for uid, splits in self._manifest.splits.items()}

    @property
    def operators(self) -> list[str]:
        """The uids of operators with state, and of sources, sorted."""
        return sorted({shape.uid for shape in self._shapes})

    @property
    def tables(self) -> list[StoredTable]:
        """All tables, by operator and state."""
        return [StoredTable(self, shape) for shape in self._shapes]

    def table(self, operator: str, state: str | None = None) -> StoredTable:
        """The table of one operator's state; `state` may be left out if the operator has only one. Raises
        UsageError for what is not there, with the nearest name."""
        states = {shape.state: shape for shape in self._shapes if shape.uid == operator}
        if not states:
            near = nearest(operator, self.operators)
            raise UnknownTableError(
                f"{self._where} has no state of {operator!r}{near}; use one of {self.operators}"
            )
        if state is None and len(states) > 1:
            raise UsageError(f"{operator!r} has several states in {self._where}: use one of {list(states)}")
        name = next(iter(states)) if state is None else state
        if name not in states:
            near = nearest(name, states)
            raise UnknownTableError(
                f"{operator!r} has no state {name!r} in {self._where}{near}; use one of {list(states)}"
            )
        return StoredTable(self, states[name])

    def close(self) -> None:
        """Let the files go. Nothing can be read then, if the job drops the checkpoint."""
        self._let_go()

    def __enter__(self) -> StoredState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StoredTable:
    """A table of a StoredState: a state of one operator, its timers, or how far a source was read."""

    def __init__(self, of: StoredState, shape: Shape) -> None:
        self._of = of
        self._shape = shape
        self._handles: Sequence[StateHandle] = [
            handle for handle in of._manifest.states if handle.uid == shape.uid
        ]

    @property
    def operator(self) -> str:
        """The uid."""
        return self._shape.uid

    @property
    def state(self) -> str:
        """The name of the state; of what the user gave none, that of its table: `windows`, `timers`."""
        return self._shape.state

    @property
    def kind(self) -> str:
        """`value`, `list`, `map`, `broadcast`, `timers`, `offsets`; or what keeps it: `window aggregate`."""
        return self._shape.kind

    @property
    def stored_rows(self) -> int:
        """How many rows its files have: keys, or keys and windows. A map of three entries counts as one."""
        if self.kind == OFFSETS:
            return len(self._of._manifest.splits[self.operator])
        return sum(handle.rows.get(self._shape.table, 0) for handle in self._handles)

    @property
    def parts(self) -> int:
        """In how many parts it can be read: one for each subtask of the operator, at least one."""
        return 1 if self._is_without_files else max(1, len(self._handles))

    @cached_property
    def key_columns(self) -> pa.Schema:
        """The columns of the key, in their order; none if rows have no key."""
        return pa.schema([]) if self._is_without_files else self._shape.key_columns(self._stored)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns: those of the key first. Times are ms since 1970."""
        if self.kind == OFFSETS:
            return SCHEMA
        return self._shape.schema(None if self._is_without_files else self._stored)

    def read(self, keys: Iterable[Any] | None = None) -> pa.Table:
        """All rows, in no order; `keys`: those of these keys alone, see `batches`."""
        return pa.Table.from_batches(self.batches(keys), self.schema)

    def batches(self, keys: Iterable[Any] | None = None, part: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in pieces, none of them empty; a file is never in memory as a whole.

        `keys`: only their rows, and only the files with their key groups are read. A key is the value of the
        only key column, or a mapping with a value for each. `part`: one of `parts`. Raises UsageError for
        what is not a key, CorruptCheckpointError for a file that is gone or was altered.
        """
        chosen = None if keys is None else self._chosen(keys)
        if self._is_without_files:
            return (batch for batch in [self._small()] if batch.num_rows)
        handles = self._handles if part is None else self._handles[part : part + 1]
        return self._read(handles, chosen)

    def of_key_groups(self, groups: range) -> pa.Table:
        """The rows of these key groups, in no order, of a table whose rows have keys."""
        return pa.Table.from_batches(self._read(self._handles, None, groups), self.schema)

    @property
    def _is_without_files(self) -> bool:
        part = self._shape.part
        return self.kind == OFFSETS or (part is not None and part.kind == BROADCAST)

    @cached_property
    def _stored(self) -> pa.Schema | None:
        return stored_schema(self._of._store, self._handles, self._shape.table)

    def _chosen(self, keys: Iterable[Any]) -> ChosenKeys:
        where = f"state {self.state!r} of {self.operator!r}"
        if not self.key_columns.names:
            raise UsageError(f"{where} has no key: read it without keys")
        return ChosenKeys(keys, self.key_columns, self._of.max_parallelism, where)

    def _read(
        self, handles: Sequence[StateHandle], chosen: ChosenKeys | None, within: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        files = StateFiles(self._of._store, self._of._manifest.attempt)
        for handle in handles:
            groups = _groups(handle, self._shape.table, chosen) if within is None else within
            if not groups:
                continue
            for batch in files.read(handle, groups).batches(self._shape.table):
                mine = batch if chosen is None else self._mine(batch, chosen)
                for rows in self._shape.rows(mine, self.schema):
                    if rows.num_rows:
                        yield rows

    def _mine(self, batch: pa.RecordBatch, chosen: ChosenKeys) -> pa.RecordBatch:
        keys = self._shape.keys(batch)
        assert keys is not None, "it has key columns"
        return batch.filter(pa.array(chosen.of(keys)))

    def _small(self) -> pa.RecordBatch:
        """The rows of a table that is in the manifest itself."""
        if self.kind == OFFSETS:
            return offsets_of(self._of._manifest.splits[self.operator])
        for handle in self._handles:  # all subtasks have the same
            copies = handle.meta.get("broadcast")
            if isinstance(copies, dict) and self.state in copies:
                (batch,) = pa.ipc.open_stream(base64.b64decode(str(copies[self.state])))
                return entries_of(batch.column(0), self.schema)
        return pa.RecordBatch.from_pylist([], self.schema)


@explained
def read_state(path: PathText, checkpoint: int | None = None) -> StoredState:
    """The state in a checkpoint folder or a savepoint, a path or URL, without the job's code: what it has as
    tables, to be read in Arrow.

    `checkpoint`: the id of a completed checkpoint in the folder, the newest if none is given. A job may run
    meanwhile: what is read is pinned, so that it stays until the StoredState is closed, for an hour at least.
    Raises UsageError if nothing of that kind is there.
    """
    store, manifest, where, pin_id = pinned_manifest(path_text(path), checkpoint)
    return StoredState(store, manifest, where, pin_id)


def pinned_manifest(
    path: str, checkpoint: int | None
) -> tuple[CheckpointStore, CheckpointManifest, str, str | None]:
    """Where the files are, what is in them, how to call it, and the pin that keeps it, if there is one."""
    store = open_store(path)
    view = read_log(store)
    if view.entries or view.corrupt:
        manifest, pin_id = pin_to_read(store, SystemClock(), checkpoint)
        return store, manifest, f"checkpoint {manifest.checkpoint_id} in {store.describe()}", pin_id
    folder = savepoint_at(path)
    try:
        taken = folder.read()
    except NoSavepointError:
        raise UsageError(
            f"{folder.describe()} has no state: neither checkpoints of a job nor a savepoint is there; give "
            "the --checkpoint-dir of a job that has run, or a savepoint's folder"
        ) from None
    if checkpoint not in (None, taken.manifest.checkpoint_id):
        raise UsageError(
            f"{folder.describe()} is a savepoint of checkpoint {taken.manifest.checkpoint_id}: "
            "leave the checkpoint out"
        )
    return folder.files_of(taken), taken.manifest, f"savepoint {folder.describe()}", None


def files_of(path: str, is_savepoint: bool) -> CheckpointStore:
    """Where the files are of what was opened at this path before."""
    if not is_savepoint:
        return open_store(path)
    folder = savepoint_at(path)
    return folder.files_of(folder.read())


def _groups(handle: StateHandle, table: str, chosen: ChosenKeys | None) -> range | None:
    """The key groups of a handle that are to be read; None: there is nothing in them."""
    if chosen is None:
        return handle.key_groups
    files = [file for file in handle.files.get(table, ()) if not file.is_removal]
    first = handle.key_groups_start
    mine = [
        group
        for group in chosen.key_groups
        if group in handle.key_groups and any(file.rows_per_key_group[group - first] for file in files)
    ]
    return range(min(mine), max(mine) + 1) if mine else None


def _let_go(store: CheckpointStore, pin_id: str | None) -> None:
    if pin_id is not None:
        unpin(store, pin_id)
