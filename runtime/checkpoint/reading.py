"""Reads the state in a checkpoint folder without the job's code.

    checkpoint = open_checkpoint("/data/checkpoints/orders")
    for table in checkpoint.tables:
        print(table.uid, table.kind, table.rows)
    for batch in checkpoint.batches("totals"):
        ...

What a state is comes from its description in the manifest, which types its columns have from the files.
The columns of each table are named in `operators/describe.py`. A job may run meanwhile; its retention does
not know of readers, so a checkpoint that is read for long may go (CorruptCheckpointError: "is gone").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.state.description import StateDescription


@dataclass(frozen=True, slots=True)
class StateTable:
    """A table of one operator's state, of all its subtasks."""

    uid: str
    name: str
    rows: int
    size_bytes: int
    """The bytes of the state in its files."""
    description: StateDescription | None
    """What made it: its kind, the key's columns and their types, the parts with their kinds and types, the
    windows, the distribution. None: an onceflow that described nothing wrote it."""

    @property
    def kind(self) -> str:
        return "" if self.description is None else self.description.kind


class StoredCheckpoint:
    """A completed checkpoint, to be read."""

    def __init__(self, store: CheckpointStore, manifest: CheckpointManifest) -> None:
        self._store = store
        self._manifest = manifest
        self.tables = _tables(manifest)
        """What there is, by uid."""

    @property
    def checkpoint_id(self) -> int:
        return self._manifest.checkpoint_id

    @property
    def job(self) -> str:
        return self._manifest.job

    @property
    def max_parallelism(self) -> int:
        """How many key groups there are."""
        return self._manifest.max_parallelism

    def batches(
        self, uid: str, table: str | None = None, key_groups: range | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one operator's table in pieces, in no order; a file is never in memory as a whole.

        `table` may be left out if there is only one; `key_groups`: the rows of these only. Raises UsageError
        for what is not there, CorruptCheckpointError for a file that is gone or was altered.
        """
        names = {t.name for t in self.tables if t.uid == uid}
        where = f"checkpoint {self.checkpoint_id} in {self._store.describe()}"
        if not names:
            raise UsageError(f"{where} has no state of {uid!r}{nearest(uid, [t.uid for t in self.tables])}")
        if table is None and len(names) > 1:
            raise UsageError(f"{where} has several tables of {uid!r}: choose one of {sorted(names)}")
        name = next(iter(names)) if table is None else table
        if name not in names:
            raise UsageError(f"{where} has no table {name!r} of {uid!r}{nearest(name, sorted(names))}")
        return self._read(uid, name, range(self.max_parallelism) if key_groups is None else key_groups)

    def _read(self, uid: str, table: str, key_groups: range) -> Iterator[pa.RecordBatch]:
        files = StateFiles(self._store, self._manifest.attempt)
        for handle in self._manifest.states:
            if handle.uid == uid:
                yield from files.read(handle, key_groups).batches(table)


def open_checkpoint(checkpoint_dir: str, checkpoint_id: int | None = None) -> StoredCheckpoint:
    """A completed checkpoint of this folder; the newest if none is asked for. Raises UsageError."""
    return stored_checkpoint(open_store(checkpoint_dir), checkpoint_id)


def stored_checkpoint(store: CheckpointStore, checkpoint_id: int | None = None) -> StoredCheckpoint:
    """The same of a store that is open."""
    completed = {manifest.checkpoint_id: manifest for _, manifest in read_log(store).completed()}
    if not completed:
        raise UsageError(f"{store.describe()} has no completed checkpoint")
    chosen = max(completed) if checkpoint_id is None else checkpoint_id
    if chosen not in completed:
        raise UsageError(
            f"{store.describe()} has no completed checkpoint {chosen}; it has "
            f"{', '.join(map(str, sorted(completed)))}"
        )
    return StoredCheckpoint(store, completed[chosen])


def _tables(manifest: CheckpointManifest) -> list[StateTable]:
    found: dict[tuple[str, str], tuple[int, int]] = {
        (uid, described.table): (0, 0) for uid, described in manifest.operators.items()
    }
    for handle in manifest.states:
        for name, files in handle.files.items():
            rows, size = found.get((handle.uid, name), (0, 0))
            found[handle.uid, name] = rows + handle.rows[name], size + sum(file.size for file in files)
    return [
        StateTable(uid, name, rows, size, manifest.operators.get(uid))
        for (uid, name), (rows, size) in sorted(found.items())
    ]
