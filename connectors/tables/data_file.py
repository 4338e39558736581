"""DataFile: one Parquet file of a table on its way, and what its commit has to say of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from onceflow.connectors.tables.file_store import FileStore
from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.errors import Retryable

GROUP_ROWS = 1 << 17
GROUP_BYTES = 16 << 20
"""The rows of a row group, or their bytes: whichever comes first."""

Described = Callable[[pq.FileMetaData], Mapping[str, Json]]
"""What a table format wants to know of a file beyond its size, from the file's footer."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that is whole and durable, as the manifest remembers it."""

    path: str
    bytes: int
    rows: int
    partition: Mapping[str, Json]
    """The value of each partition column that all its rows have, as the table format writes it."""
    described: Mapping[str, Json]


class DataFile:
    """One file. `write` and `bytes` are the task's thread's, `finish` is another's."""

    def __init__(
        self,
        store: FileStore,
        path: str,
        schema: pa.Schema,
        partition: Mapping[str, Json],
        describe: Described,
    ) -> None:
        """Creates it. Raises OSError."""
        self.path = path
        self._store = store
        self._schema = schema
        self._partition = partition
        self._describe = describe
        self._file = store.create(path)
        self._footers: list[pq.FileMetaData] = []
        self._parquet = pq.ParquetWriter(
            self._file, schema, compression="zstd", metadata_collector=self._footers
        )
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self.held_bytes = 0
        """The bytes of rows that are in memory only."""
        self.bytes = 0
        """The bytes of all its rows, as they are in memory: more than the file will have."""
        self._lock = threading.Lock()
        """Around `finish`: an aborted checkpoint's may run while the next one's does."""
        self._written: WrittenFile | None = None
        self._failure: BaseException | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows. Raises OSError."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.held_bytes += batch.nbytes
        self.bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self.held_bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is in memory as a row group. Raises OSError."""
        if self._batches:
            self._parquet.write_table(pa.Table.from_batches(self._batches, self._schema), GROUP_ROWS)
        self._batches, self._rows, self.held_bytes = [], 0, 0

    def finish(self) -> WrittenFile:
        """Make it durable; does it once however often it is called.

        Raises OSError; then Retryable each time, until the attempt is restarted and makes the rows anew.
        """
        with self._lock:
            if self._failure is not None:
                raise Retryable(f"data file {self.path} could not be finished: {self._failure}")
            if self._written is None:
                try:
                    self._written = self._finish()
                except BaseException as error:
                    self._failure = error
                    self._parquet.is_open = False
                    raise
            return self._written

    def give_up(self) -> None:
        """Let go of it: the next attempt deletes what is there."""
        self._parquet.is_open = False  # else it writes its footer when it is collected
        self._file.close()

    def _finish(self) -> WrittenFile:
        self.flush()
        self._parquet.close()
        footer: Any = self._footers[0]
        size = self._file.tell()
        self._store.finish(self._file)
        return WrittenFile(self.path, size, footer.num_rows, self._partition, self._describe(footer))
