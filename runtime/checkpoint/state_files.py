"""Operator state in files: Arrow IPC streams, sorted by key group, with checksums; staged output files.

One file for each operator subtask and checkpoint; its name holds attempt and checkpoint id, so attempts
never meet, and what nobody references can be told by name (`retention.py`).
"""

from __future__ import annotations

import itertools
from typing import BinaryIO
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from isal import isal_zlib  # zlib's numbers, at four times its speed

from onceflow.runtime.checkpoint.manifest import StateHandle, TableFile, meta_as_json
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.state.operator_state import OperatorState

STATE_FOLDER = "state"
STAGED_FOLDER = "staged"
KEY_GROUP_COLUMN = "key_group"
COMPRESS_FROM_BYTES = 1 << 16
"""Below this, setting up the compression costs more than it saves."""


def attempt_folder(folder: str, attempt: int) -> str:
    return f"{folder}/attempt-{attempt:06d}"


def state_path(attempt: int, checkpoint_id: int, uid: str, subtask: int) -> str:
    return (
        f"{attempt_folder(STATE_FOLDER, attempt)}/{checkpoint_id:010d}.{quote(uid, safe='')}.{subtask}.arrows"
    )


class StateFiles:
    """Writes the state of an attempt's operators and reads what an earlier one wrote. Thread-safe."""

    def __init__(self, store: CheckpointStore, attempt: int) -> None:
        self._store = store
        self._attempt = attempt

    def write(self, checkpoint_id: int, uid: str, subtask: int, state: OperatorState) -> StateHandle:
        """Write once, durably; called on a background thread while the operator goes on.

        A state whose tables are all empty has no file: it comes back with its meta and no tables.
        """
        tables: list[TableFile] = []
        if any(table.num_rows for table in state.tables.values()):
            path = state_path(self._attempt, checkpoint_id, uid, subtask)
            with self._store.create_file(path) as file:
                for name, table in state.tables.items():
                    tables.append(_write_table(file, path, name, table, state.key_groups))
        groups = state.key_groups
        return StateHandle(uid, subtask, groups.start, groups.stop, tuple(tables), meta_as_json(state.meta))

    def read(self, handle: StateHandle, key_groups: range) -> OperatorState:
        """What the handle's state holds for these key groups.

        Raises CorruptCheckpointError with the path if a file is gone, short, or altered.
        """
        start = max(handle.key_groups_start, key_groups.start)
        end = max(start, min(handle.key_groups_end, key_groups.stop))
        tables = {table.name: self._read_table(handle, table, range(start, end)) for table in handle.tables}
        return OperatorState(range(start, end), tables, handle.meta)

    def _read_table(self, handle: StateHandle, table: TableFile, key_groups: range) -> pa.Table:
        where = f"{self._store.describe(table.path)} (state {table.name!r} of operator {handle.uid!r})"
        try:
            with self._store.open(table.path) as file:
                file.seek(table.offset)
                content = file.read(table.size)
        except FileNotFoundError:
            raise CorruptCheckpointError(f"{where} is gone") from None
        if len(content) != table.size:
            raise CorruptCheckpointError(
                f"{where} ends after {table.offset + len(content)} bytes, not {table.offset + table.size}"
            )
        if checksum(content) != table.checksum:
            raise CorruptCheckpointError(f"{where} was altered: its checksum is not {table.checksum}")
        rows = pa.ipc.open_stream(content, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()
        counts = table.rows_per_key_group
        if len(counts) != len(handle.key_groups) or sum(counts) != rows.num_rows:
            raise CorruptCheckpointError(
                f"{where} has {rows.num_rows} rows, not {sum(counts)} as its manifest says"
            )
        first = key_groups.start - handle.key_groups_start
        before = sum(counts[:first])
        return rows.slice(before, sum(counts[first : first + len(key_groups)]))


def _write_table(file: BinaryIO, path: str, name: str, table: pa.Table, key_groups: range) -> TableFile:
    assert table.schema.names[:1] == [KEY_GROUP_COLUMN], (
        f"table {name!r} starts with {table.schema.names[:1]}"
    )
    groups = table.column(0).to_numpy()
    if groups.size and (np.diff(groups.astype(np.int32)) < 0).any():
        order = np.argsort(groups, kind="stable")
        table, groups = table.take(pa.array(order)), groups[order]
    if groups.size:
        span = range(int(groups[0]), int(groups[-1]) + 1)
        assert key_groups.start <= span.start < span.stop <= key_groups.stop, (
            f"{name!r}: {span} in {key_groups}"
        )
    counts = np.bincount(groups.astype(np.int64) - key_groups.start, minlength=len(key_groups))
    sink = pa.BufferOutputStream()
    compression = "lz4" if table.nbytes >= COMPRESS_FROM_BYTES else None
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=1 << 20)
    content = sink.getvalue()
    offset = file.tell()
    file.write(content)
    return TableFile(name, path, offset, len(content), checksum(content), tuple(counts.tolist()))


def checksum(content: bytes | pa.Buffer) -> str:
    """Finds what a disk or a person did to a file; no protection against an attacker."""
    return f"crc32:{isal_zlib.crc32(content):08x}"


class AttemptStagedFiles:
    """contracts.StagedFiles for one writer of one attempt.

    `lane` tells the writers of an attempt apart (uid and subtask); a counter tells its files apart.
    """

    def __init__(self, store: CheckpointStore, attempt: int, uid: str, subtask: int) -> None:
        self._store = store
        self._prefix = f"{attempt_folder(STAGED_FOLDER, attempt)}/{quote(uid, safe='')}.{subtask}"
        self._numbers = itertools.count()

    def create(self, name: str) -> tuple[str, BinaryIO]:
        path = f"{self._prefix}.{next(self._numbers):08d}.{quote(name, safe='')}"
        return path, self._store.create_file(path)

    def open(self, path: str) -> BinaryIO:
        try:
            return self._store.open(path)
        except FileNotFoundError:
            raise CorruptCheckpointError(
                f"{self._store.describe(path)} is gone: it holds output that a checkpoint promised"
            ) from None
