"""Staged files of rows in PRODUCE_SCHEMA: Arrow IPC streams one behind the other, and a checksum of all.

Most sinks write to one topic, without headers or timestamps and often without keys. Such columns would be a
quarter of a file of short records, so a stream leaves out what is the same in all its rows; a row for which
that does not hold begins the next stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
from isal import isal_zlib  # zlib's numbers, at four times its speed

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.produce.constant_columns import SameForAll, only_topic

_TOPIC = b"onceflow.topic"
"""In the metadata of a stream's schema: the topic of all its rows, if they have no column for it."""
_READ_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
"""The bytes of a piece, read twice, for the checksum and for the file: the second time out of the cache."""


class StagedFileWriter:
    """Writes one staged file. Its size and CRC-32 are known when it is closed."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self._crc32 = 0
        self._size = 0
        self._topic: str | None = None
        """The topic of all rows of the stream; None: not known yet, or there is a column of topics."""
        self._columns = {"partition", "value"}
        """The columns that the stream has; what was needed once stays."""
        self._schema = PRODUCE_SCHEMA
        self._stream: pa.RecordBatchStreamWriter | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Write these rows as one batch, which reading gives back as it was."""
        needed, topic = _columns_of(rows), None if "topic" in self._columns else only_topic(rows)
        if topic is None or self._topic not in (None, topic):
            needed.add("topic")
        if self._stream is None or not needed <= self._columns:
            self._columns |= needed
            self._topic = None if "topic" in self._columns else topic
            self._begin_stream()
        assert self._stream is not None, "it was begun"
        columns = [rows[name] for name in self._schema.names]
        self._stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> tuple[int, int]:
        """The CRC-32 and the size in bytes."""
        if self._stream is not None:
            self._stream.close()
        self._file.close()
        return self._crc32, self._size

    def take(self, block: bytes) -> int:
        content = memoryview(block)
        for first in range(0, len(content), _PIECE_BYTES):
            piece = content[first : first + _PIECE_BYTES]
            self._crc32 = isal_zlib.crc32(piece, self._crc32)
            self._file.write(piece)
        self._size += len(content)
        return len(content)

    def _begin_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
        metadata = None if self._topic is None else {_TOPIC: self._topic.encode()}
        self._schema = pa.schema([f for f in PRODUCE_SCHEMA if f.name in self._columns], metadata)
        self._stream = pa.ipc.new_stream(pa.PythonFile(_Tee(self), mode="w"), self._schema)


def checksum(file: BinaryIO) -> tuple[int, int]:
    """The CRC-32 and the size in bytes of what a StagedFileWriter has written."""
    crc32 = size = 0
    while block := file.read(_READ_BYTES):
        crc32, size = isal_zlib.crc32(block, crc32), size + len(block)
    return crc32, size


def read_rows(file: BinaryIO, size: int) -> Iterator[pa.RecordBatch]:
    """What a StagedFileWriter has written, `size` bytes of it."""
    while file.tell() < size:
        with pa.ipc.open_stream(file) as stream:
            names, metadata = stream.schema.names, stream.schema.metadata or {}
            same = SameForAll(metadata.get(_TOPIC, b"").decode())
            for batch in stream:
                others = same.columns(batch.num_rows)
                columns = [batch[n] if n in names else others[n] for n in PRODUCE_SCHEMA.names]
                yield pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)


def _columns_of(rows: pa.RecordBatch) -> set[str]:
    """The columns that are not null in all rows."""
    nullable = ("key", "headers", "timestamp")
    return {name for name in nullable if rows[name].null_count < rows.num_rows}


class _Tee:
    """What pyarrow needs of a file it writes to."""

    closed = False

    def __init__(self, target: StagedFileWriter) -> None:
        self._target = target

    def write(self, block: bytes) -> int:
        return self._target.take(block)

    def flush(self) -> None: ...
