"""AppendWriter: the SinkWriter of a table to which rows are appended. It writes data files; the driver's
committer names them in one commit of the table."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import pyarrow as pa

from onceflow.connectors.tables.columns import FittedColumns
from onceflow.connectors.tables.data_file import DataFile, Described, WrittenFile
from onceflow.connectors.tables.file_names import FileNames
from onceflow.connectors.tables.file_store import FileStore
from onceflow.runtime.contracts import Committable, PreCommit, SinkContext
from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.records import Records

OPEN_FILES_MAX = 64
"""More partitions at a time: the file that has had no rows for longest is closed."""
HELD_BYTES_MAX = 128 << 20
"""The most bytes of rows in memory, over all open files."""
FILE_BYTES_MAX = 512 << 20
"""A file with more bytes of rows, as they are in memory, is closed, and a new one begun."""


class Partitioning(Protocol):
    """How rows are spread over partitions."""

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Mapping[str, Json], pa.RecordBatch]]:
        """The rows of each partition, with its values as JSON, as the table format writes them."""
        ...


@dataclass(frozen=True, slots=True)
class AppendedTable:
    """A table as a writer needs it; made when the writer is opened."""

    store: FileStore
    names: FileNames
    columns: FittedColumns
    partitioning: Partitioning
    file_schema: pa.Schema
    """The columns that are in a data file."""
    describe: Described
    last_committed: int | None
    """What the ledger said when the table was opened."""


class AppendWriter:
    """See the module, and contracts.SinkWriter."""

    def __init__(self, context: SinkContext, table: AppendedTable) -> None:
        self._context = context
        self._table = table
        self._where = f"sink {context.uid!r}"
        self._numbers = itertools.count()
        self._token = os.urandom(4).hex()
        self._after_id = context.restored_checkpoint_id
        self._open: OrderedDict[str, DataFile] = OrderedDict()
        """Files of the rows since the last barrier, by partition; the one written to last is the last."""
        self._closed: list[DataFile] = []
        """Files of the rows since the last barrier that get no more rows."""
        self._lock = threading.Lock()
        """Around the files below, which the task's thread and the commit thread use."""
        self._held: list[tuple[int, list[DataFile]]] = []
        """Files that are in no committed checkpoint, with the first checkpoint that has them."""

    def recover(self, committables: Sequence[Committable]) -> None:
        """Delete what earlier attempts have left. One subtask does it for all."""
        assert not committables, "the committer has committed them before a slot was started"
        context, table = self._context, self._table
        if context.subtask or context.attempt <= 1 or (table.last_committed or 0) > self._after_id:
            return
        # What can't be deleted now stays: it costs room, and the table's own clean-up takes it later.
        with contextlib.suppress(OSError):
            for path in table.names.orphans(table.store, self._after_id, context.attempt):
                table.store.delete(path)

    def write(self, records: Records) -> None:
        if not len(records):
            return
        batch = self._table.columns.fit(records.batch, self._where)
        for partition, rows in self._table.partitioning.split(batch):
            self._file_of(partition).write(rows)
        if sum(file.held_bytes for file in self._open.values()) > HELD_BYTES_MAX:
            for file in self._open.values():
                file.flush()

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        files = [*self._closed, *self._open.values()]
        self._closed, self._open = [], OrderedDict()
        self._after_id = checkpoint_id
        with self._lock:
            if files:
                self._held.append((checkpoint_id, files))
            held = [file for _, each in self._held for file in each]
        return _PreCommit(self._context, checkpoint_id, held)

    def commit(self, checkpoint_id: int) -> None:
        """The committer has made them visible."""
        with self._lock:
            self._held = [(n, files) for n, files in self._held if n > checkpoint_id]

    def close(self) -> None:
        for file in self._open.values():
            with contextlib.suppress(OSError):
                file.give_up()

    def _file_of(self, partition: Mapping[str, Json]) -> DataFile:
        key = repr(partition)
        file = self._open.get(key)
        if file is not None and file.bytes > FILE_BYTES_MAX:
            self._close(key)
            file = None
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            table, context = self._table, self._context
            path = table.names.name(
                self._after_id, context.attempt, context.subtask, next(self._numbers), self._token
            )
            file = DataFile(table.store, path, table.file_schema, partition, table.describe)
            self._open[key] = file
        self._open.move_to_end(key)
        return file

    def _close(self, key: str) -> None:
        file = self._open.pop(key)
        file.finish()
        self._closed.append(file)


@dataclass(frozen=True, slots=True)
class _PreCommit:
    """See contracts.PreCommit."""

    context: SinkContext
    checkpoint_id: int
    files: Sequence[DataFile]

    def stage(self) -> Committable:
        files = [asdict(file.finish()) for file in self.files]
        owner = str(self.context.subtask)
        return Committable(self.context.uid, owner, self.checkpoint_id, {"files": files})


def written_files(committables: Sequence[Committable]) -> list[WrittenFile]:
    """The data files that these name."""
    return [WrittenFile(**each) for one in committables for each in one.payload["files"]]
