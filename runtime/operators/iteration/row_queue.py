"""RowQueue: batches that wait, in their order; those that have no room in memory lie in temporary files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from onceflow.runtime.environment.spool import Spool
from onceflow.runtime.records import Records

FILE_BYTES = 64 << 20
"""A file is no larger: it is gone when all of it was taken, and no checkpoint is written of it any more."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A batch in a file. Any thread may read it, again and again."""

    spool: Spool
    place: int
    size: int
    rows: int
    schema: pa.Schema

    def __len__(self) -> int:
        return self.rows

    @property
    def batch(self) -> pa.RecordBatch:
        with self.spool.open(self.place, self.size) as file:
            return pa.ipc.read_record_batch(pa.py_buffer(file.read()), self.schema)


Waiting = Records | StoredRows
"""A batch of the queue: both have a `batch` and a length."""


class RowQueue:
    """One thread. Rows have columns alone: no event times, kinds or hashes."""

    def __init__(self, folder: Path | None = None, file_bytes: int = FILE_BYTES) -> None:
        """`folder`: see Spool."""
        self._waiting: deque[Waiting] = deque()
        self._folder = folder
        self._file_bytes = file_bytes
        self._in_memory = 0
        """The bytes of batches that wait in memory."""
        self._spool: Spool | None = None
        self._place = 0
        self.bytes_max: Callable[[], int] | None = None
        """How many bytes of the queue may be in memory; None: all."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._waiting)

    def append(self, records: Records) -> Waiting:
        """Let these rows wait behind all others. Returns them as they wait. Raises Retryable if the disk has
        no room."""
        size = int(records.batch.nbytes)
        waiting: Waiting = records
        if self.bytes_max is not None and self._in_memory + size > self.bytes_max():
            waiting = self._stored(records.batch)
        else:
            self._in_memory += size
        self._waiting.append(waiting)
        return waiting

    def take(self, rows_max: int) -> Records | None:
        """About so many of the rows that have waited longest, or None if none waits."""
        if not self._waiting:
            return None
        first = self._waiting.popleft()
        if isinstance(first, StoredRows):
            first = Records(first.batch)
        else:
            self._in_memory -= int(first.batch.nbytes)
        if len(first) <= rows_max:
            return first
        rest = first.slice(rows_max, len(first) - rows_max)
        self._waiting.appendleft(rest)
        self._in_memory += int(rest.batch.nbytes)
        return first.slice(0, rows_max)

    def _stored(self, batch: pa.RecordBatch) -> StoredRows:
        if self._spool is None or self._place >= self._file_bytes:
            self._spool, self._place = Spool("rows that go round in a loop", self._folder), 0
        content = batch.serialize().to_pybytes()
        place, self._place = self._place, self._place + len(content)
        self._spool.write(place, content)
        return StoredRows(self._spool, place, len(content), batch.num_rows, batch.schema)
