"""Operator state in files: Arrow IPC streams with checksums.

One file for each operator subtask and checkpoint (`state_paths.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from isal import isal_zlib  # zlib's numbers, at four times its speed
from msgspec import structs

from onceflow.runtime.checkpoint.copies import COPY_BYTES_MAX, copy_path, create_copied_file
from onceflow.runtime.checkpoint.fingerprints import is_lasting
from onceflow.runtime.checkpoint.increments import Chains, merged
from onceflow.runtime.checkpoint.manifest import StateHandle, TableFile, meta_as_json
from onceflow.runtime.checkpoint.state_paths import STAGED_FOLDER, STATE_FOLDER, attempt_folder, state_path
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError, Retryable, Unavailable
from onceflow.runtime.records import Int64s
from onceflow.runtime.state.increments import FrozenIncrement
from onceflow.runtime.state.operator_state import (
    KEY_GROUP_COLUMN,
    Batches,
    FrozenRows,
    FrozenState,
    RestoredState,
    of_key_groups,
)

COMPRESS_FROM_BYTES = 1 << 16
"""Below this, setting up the compression costs more than it saves."""
PIECE_ROWS = 1 << 15
"""What a piece of a table takes while it is made and encoded is used again for the next one: to get memory
that was never used, tens of megabytes of it, costs more than all that is done there."""
CHECK_BYTES = 1 << 18
"""How much of a file is in memory while it is checked, in bytes."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class StateFiles:
    """Writes the state of an attempt's operators and reads what an earlier one wrote. Thread-safe."""

    def __init__(
        self, store: CheckpointStore, attempt: int, on_healed: Callable[[str], None] = lambda problem: None
    ) -> None:
        """`on_healed(problem)`: a damaged file was read from its copy; on the reader's thread."""
        self._store = store
        self._attempt = attempt
        self._on_healed = on_healed
        self._chains = Chains()

    def write(self, checkpoint_id: int, uid: str, subtask: int, state: FrozenState) -> StateHandle:
        """Write once, durably; called on a background thread while the operator goes on.

        A state whose tables are all empty has no file: it comes back with its meta and no tables.
        """
        path, groups = state_path(self._attempt, checkpoint_id, uid, subtask), state.key_groups
        tables: list[TableFile] = []
        with contextlib.ExitStack() as stack:
            file: BinaryIO | None = None
            if any(map(_has_content, state.tables.values())):
                earlier = (self._chains.base((uid, subtask, n), rows) for n, rows in state.tables.items())
                # A copy of the last bit of something large would help nobody.
                is_large = sum(f.size for files in earlier for f in files) > COPY_BYTES_MAX
                create = self._store.create_file if is_large else self._create_copied
                file = stack.enter_context(create(path))
            for name, rows in state.tables.items():
                new = [] if file is None else list(_write_rows(file, path, name, rows, groups))
                tables += self._chains.extended((uid, subtask, name), rows, new)
        for rows in state.tables.values():
            if isinstance(rows, FrozenIncrement):
                rows.increment.written()
        return StateHandle(uid, subtask, groups.start, groups.stop, tuple(tables), meta_as_json(state.meta))

    def _create_copied(self, path: str) -> BinaryIO:
        return create_copied_file(self._store, path)

    def read(self, handle: StateHandle, key_groups: range) -> RestoredState:
        """What the handle's state holds for these key groups.

        Its files are read through and checked now, and once more, piece by piece, by whoever takes the rows:
        a file is never in memory as a whole. Raises CorruptCheckpointError with the path if a file is gone,
        short, or altered, and has no copy that is whole.
        """
        start = max(handle.key_groups_start, key_groups.start)
        end = max(start, min(handle.key_groups_end, key_groups.stop))
        mine = range(start, end)
        tables = {name: self._table(handle, files, mine) for name, files in handle.files.items()}
        return RestoredState(mine, tables, handle.meta)

    def _table(self, handle: StateHandle, files: Sequence[TableFile], key_groups: range) -> Batches:
        """The rows of one table, whatever files they are in."""
        if len(files) == 1:
            return self._file(handle, files[0], key_groups)
        read = {file: self._file(handle, file, key_groups) for file in files}
        return lambda: merged(files, lambda file: read[file]())

    def _file(self, handle: StateHandle, table: TableFile, key_groups: range) -> Batches:
        where = f"{self._store.describe(table.path)} (state {table.name!r} of operator {handle.uid!r})"
        counts = table.rows_per_key_group
        if len(counts) != len(handle.key_groups):
            raise CorruptCheckpointError(
                f"{where} has {len(handle.key_groups)} key groups, its manifest counts rows of {len(counts)}"
            )
        path = self._whole_path(table, where)

        def batches() -> Iterator[pa.RecordBatch]:
            pieces = _batches(self._store, table, path, where)
            return pieces if key_groups == handle.key_groups else of_key_groups(pieces, key_groups)

        return batches

    def _whole_path(self, table: TableFile, where: str) -> str:
        """The path of the file, or of its copy if only that is whole."""
        try:
            _check(self._store, table, table.path, where)
            return table.path
        except (CorruptCheckpointError, OSError) as error:
            is_known = isinstance(error, CorruptCheckpointError)
            problem = str(error) if is_known else f"{where} can't be read: {error}"
            try:
                _check(self._store, table, copy_path(table.path), where)
            except (CorruptCheckpointError, OSError):
                raise error from None
        self._on_healed(f"{problem}; read from its copy")
        return copy_path(table.path)


def _check(store: CheckpointStore, table: TableFile, path: str, where: str) -> None:
    """Read the table's bytes through. Raises CorruptCheckpointError if they are not all there, or are not
    what was written; OSError."""
    size, crc = 0, 0
    try:
        with store.open(path) as file:
            file.seek(table.offset)
            while content := file.read(min(CHECK_BYTES, table.size - size)):
                size, crc = size + len(content), isal_zlib.crc32(content, crc)
    except FileNotFoundError:
        raise CorruptCheckpointError(f"{where} is gone") from None
    if size != table.size:
        raise CorruptCheckpointError(
            f"{where} ends after {table.offset + size} bytes, not {table.offset + table.size}"
        )
    if _shown(crc) != table.checksum:
        raise CorruptCheckpointError(f"{where} was altered: its checksum is not {table.checksum}")


def _batches(store: CheckpointStore, table: TableFile, path: str, where: str) -> Iterator[pa.RecordBatch]:
    """The rows of a table that was checked, as they were written in pieces."""
    rows, expected = 0, sum(table.rows_per_key_group)
    try:
        file = store.open(path)
    except FileNotFoundError:
        raise CorruptCheckpointError(f"{where} is gone") from None
    with file:
        file.seek(table.offset)
        for batch in pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(use_threads=False)):
            rows += batch.num_rows
            if batch.num_rows:
                yield batch
    if rows != expected:
        raise CorruptCheckpointError(f"{where} has {rows} rows, not {expected} as its manifest says")


def _has_content(rows: FrozenRows) -> bool:
    return len(rows) > 0 or (isinstance(rows, FrozenIncrement) and len(rows.increment.removed) > 0)


def _write_rows(
    file: BinaryIO, path: str, name: str, rows: FrozenRows, key_groups: range
) -> Iterator[TableFile]:
    """Write a table's rows, and those that are gone, if its snapshot is an increment."""
    if not isinstance(rows, FrozenIncrement):
        yield _write_table(file, path, name, rows, key_groups)
        return
    increment = rows.increment
    if len(increment.removed):
        removed = _write_table(file, path, name, increment.removed, key_groups)
        yield structs.replace(removed, is_removal=True, table_rows=increment.table_rows)
    yield structs.replace(
        _write_table(file, path, name, rows, key_groups),
        covers=tuple(increment.covers),
        start_column=increment.start_column or "",
        table_rows=increment.table_rows,
    )


def _write_table(file: BinaryIO, path: str, name: str, rows: FrozenRows, key_groups: range) -> TableFile:
    counts = np.zeros(len(key_groups), np.int64)
    offset, size, crc = file.tell(), 0, 0
    for content in _stream(name, rows, key_groups, counts):
        file.write(content)
        size, crc = size + len(content), isal_zlib.crc32(content, crc)
    return TableFile(name, path, offset, size, _shown(crc), tuple(counts.tolist()))


def _stream(name: str, rows: FrozenRows, key_groups: range, counts: Int64s) -> Iterator[pa.Buffer | bytes]:
    """An IPC stream of these rows in pieces of its bytes. Counts the rows of each key group."""
    schema_bytes, options = 0, pa.ipc.IpcWriteOptions(use_threads=False)
    for first in range(0, max(1, len(rows)), PIECE_ROWS):
        batch = rows.piece(first, min(first + PIECE_ROWS, len(rows)))
        _count(batch, name, key_groups, counts)
        if not first and batch.nbytes >= COMPRESS_FROM_BYTES:
            options.compression = "lz4"
        # Each piece is encoded as a stream of its own, without the schema but for the first, and the end.
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        content = sink.getvalue()
        yield content.slice(schema_bytes, content.size - schema_bytes - len(_END_OF_STREAM))
        schema_bytes = batch.schema.serialize().size
    yield _END_OF_STREAM


def _count(batch: pa.RecordBatch, name: str, key_groups: range, counts: Int64s) -> None:
    names = batch.schema.names
    assert names[:1] == [KEY_GROUP_COLUMN], f"table {name!r} starts with {names[:1]}"
    if batch.num_rows:
        groups = batch.column(0).to_numpy()
        span = range(int(groups.min()), int(groups.max()) + 1)
        is_mine = key_groups.start <= span.start < span.stop <= key_groups.stop
        assert is_mine, f"{name!r}: {span} in {key_groups}"
        counts += np.bincount(groups - np.uint16(key_groups.start), minlength=len(counts))


def _shown(crc: int) -> str:
    """A checksum finds what a disk or a person did to a file; it is no protection against an attacker."""
    return f"crc32:{crc:08x}"


def check_writable(store: CheckpointStore, attempt: int, slot: int) -> None:
    """Called before a slot starts, so that a folder that can't be written is found now, and not by the first
    snapshot or the first output that has to wait. Raises Unavailable naming it, Retryable for what may
    pass."""
    for folder in (STATE_FOLDER, STAGED_FOLDER):
        path = f"{attempt_folder(folder, attempt)}/{slot}.probe"
        try:
            store.create_file(path).close()
            store.delete([path])
        except OSError as error:
            kind = Unavailable if is_lasting(error) else Retryable
            raise kind(f"slot {slot} can't write into {store.describe(folder)}: {error}") from error
