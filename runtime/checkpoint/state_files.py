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

from onceflow.runtime.checkpoint.checked_files import (
    AT_ONCE,
    CheckedFiles,
    Open,
    Wanted,
    shown_checksum,
)
from onceflow.runtime.checkpoint.copies import COPY_BYTES_MAX, create_copied_file
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
PIECE_BYTES = 1 << 20
"""A piece has fewer rows where so many would be larger: it is in memory several times while it is made and
encoded, and when it is restored, beside what the state may take there."""
FIRST_ROWS = 1 << 10
"""How many the first piece has, which tells how large rows are."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class StateFiles:
    """Writes the state of an attempt's operators and reads what an earlier one wrote. Thread-safe."""

    def __init__(
        self,
        store: CheckpointStore,
        attempt: int,
        on_healed: Callable[[str], None] = lambda problem: None,
        at_once: int = AT_ONCE,
        describe: Callable[[str], str] | None = None,
    ) -> None:
        """`on_healed(problem)`: a damaged file was read from its copy; on the reader's thread. `at_once`: see
        CheckedFiles. `describe(path)`: what a file is called in messages; None: as the store calls it."""
        self._store = store
        self._describe = store.describe if describe is None else describe
        self._attempt = attempt
        self._checked = CheckedFiles(store, on_healed, at_once)
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
        """What the handle's state holds for these key groups; see `read_all`."""
        (state,) = self.read_all([(handle, key_groups)])
        return state

    def read_all(self, wanted: Sequence[tuple[StateHandle, range]]) -> list[RestoredState]:
        """What each handle's state holds for its key groups, in order.

        The files are read through and checked now, many at once (`checked_files.py`), and once more, piece by
        piece, by whoever takes the rows: a file is never in memory as a whole. Of a table that has no row of
        these key groups nothing is read. Raises CorruptCheckpointError with the path if a file is gone,
        short, or altered, and has no copy that is whole.
        """
        found = [(handle, _common(handle.key_groups, key_groups)) for handle, key_groups in wanted]
        needed = [
            Wanted(table, self.where(handle, table))
            for handle, mine in found
            for table in handle.tables
            if _has_rows(handle, table, mine, self.where(handle, table))
        ]
        opens = dict(zip((id(each.table) for each in needed), self._checked.opened(needed), strict=True))
        states = []
        for handle, mine in found:
            tables = {
                name: _table([self._file(handle, file, mine, opens.get(id(file))) for file in files], files)
                for name, files in handle.files.items()
            }
            states.append(RestoredState(mine, tables, handle.meta))
        return states

    def where(self, handle: StateHandle, table: TableFile) -> str:
        """The file and the state, for messages."""
        return f"{self._describe(table.path)} (state {table.name!r} of operator {handle.uid!r})"

    def _file(self, handle: StateHandle, table: TableFile, mine: range, opens: Open | None) -> Batches:
        if opens is None:
            return lambda: iter(())
        where = self.where(handle, table)

        def batches() -> Iterator[pa.RecordBatch]:
            pieces = _batches(opens, table, where)
            return pieces if mine == handle.key_groups else of_key_groups(pieces, mine)

        return batches


def _common(these: range, those: range) -> range:
    start = max(these.start, those.start)
    return range(start, max(start, min(these.stop, those.stop)))


def _has_rows(handle: StateHandle, table: TableFile, mine: range, where: str) -> bool:
    """Whether a table has rows of some of its handle's key groups. Of all of them it has: what is read as a
    whole is checked as a whole."""
    groups, counts = handle.key_groups, table.rows_per_key_group
    if len(counts) != len(groups):
        raise CorruptCheckpointError(
            f"{where} has {len(groups)} key groups, its manifest counts rows of {len(counts)}"
        )
    return mine == groups or any(counts[mine.start - groups.start : mine.stop - groups.start])


def _table(read: Sequence[Batches], files: Sequence[TableFile]) -> Batches:
    """The rows of one table, whatever files they are in."""
    if len(files) == 1:
        return read[0]
    by_file = dict(zip(files, read, strict=True))
    return lambda: merged(files, lambda file: by_file[file]())


def _batches(opens: Open, table: TableFile, where: str) -> Iterator[pa.RecordBatch]:
    """The rows of a table that was checked, as they were written in pieces."""
    rows, expected = 0, sum(table.rows_per_key_group)
    with opens() as file:
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
    return TableFile(name, path, offset, size, shown_checksum(crc), tuple(counts.tolist()))


def _stream(name: str, rows: FrozenRows, key_groups: range, counts: Int64s) -> Iterator[pa.Buffer | bytes]:
    """An IPC stream of these rows in pieces of its bytes. Counts the rows of each key group."""
    schema_bytes, options = 0, pa.ipc.IpcWriteOptions(use_threads=False)
    first, piece_rows, total = 0, FIRST_ROWS, len(rows)
    while first < total or not schema_bytes:
        batch = rows.piece(first, min(first + piece_rows, total))
        _count(batch, name, key_groups, counts)
        row_bytes = batch.nbytes // max(1, batch.num_rows) + 1
        if not first and row_bytes * total >= COMPRESS_FROM_BYTES:
            options.compression = "lz4"
        first += piece_rows
        piece_rows = min(PIECE_ROWS, max(1, PIECE_BYTES // row_bytes))
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
