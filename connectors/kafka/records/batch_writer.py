"""Rows in PRODUCE_SCHEMA as Kafka's record batches of version 2. Import only if kernels are enabled."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import pyarrow as pa

from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.records.compression import Codec
from onceflow.connectors.kafka.records.record_writer import RecordWriter, WrittenRecords

_BEFORE_CRC = struct.Struct(">qiibI")
_BEHIND_CRC = struct.Struct(">hiqqqhii")
_HEADER_BYTES = _BEFORE_CRC.size + _BEHIND_CRC.size
_LENGTH_FROM = 12
_NO_OFFSET_YET, _NO_EPOCH, _MAGIC = 0, -1, 2
_TRANSACTIONAL = 0x10
_SEQUENCES = 1 << 31
"""How many sequence numbers there are: from 0 to the highest int32, and from 0 again."""


def next_sequence(sequence: int, count: int) -> int:
    """The sequence number of the batch that follows one of `count` records in the same partition."""
    return (sequence + count) % _SEQUENCES


@dataclass(frozen=True, slots=True)
class RowsToWrite:
    """Neighbouring rows for one partition."""

    start: int
    stop: int
    sequence: int
    """The sequence number of the first row."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch."""

    pieces: tuple[bytes, memoryview]
    """The bytes of the batch: header and records."""
    after: int
    """The row that follows on those in it."""
    bytes: int
    """The size of the batch before compression."""

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


class BatchWriter:
    """Writes batches of one producer epoch."""

    def __init__(
        self,
        identity: ProducerIdentity,
        batch_bytes_max: int,
        codec: Codec | None = None,
    ) -> None:
        """`batch_bytes_max`: before compression; only a single record may be larger."""
        self._identity = identity
        self._records_bytes_max = max(1, batch_bytes_max - _HEADER_BYTES)
        self._codec = codec
        self._records = RecordWriter()

    def take(self, rows: pa.RecordBatch, now_ms: int) -> None:
        """See RecordWriter."""
        self._records.take(rows, now_ms)

    def write(self, runs: Sequence[RowsToWrite]) -> list[Batch]:
        """Write one batch for each of these runs, in their order: the first rows of the run, as many as a
        batch holds. The batches are valid until the next call."""
        written = self._records.write([(run.start, run.stop) for run in runs], self._records_bytes_max)
        return [self._batch(run, records) for run, records in zip(runs, written, strict=True)]

    def _batch(self, run: RowsToWrite, records: WrittenRecords) -> Batch:
        attributes, content = self._compressed(records.content)
        count = records.after - run.start
        behind = _BEHIND_CRC.pack(
            attributes,
            count - 1,
            records.first_ms,
            records.latest_ms,
            self._identity.producer_id,
            self._identity.epoch,
            run.sequence,
            count,
        )
        checksum = google_crc32c.extend(google_crc32c.value(behind), content)
        length = _HEADER_BYTES - _LENGTH_FROM + content.size
        before = _BEFORE_CRC.pack(_NO_OFFSET_YET, length, _NO_EPOCH, _MAGIC, checksum)
        size = _HEADER_BYTES + records.content.size
        return Batch((before + behind, memoryview(content)), records.after, size)

    def _compressed(self, content: pa.Buffer) -> tuple[int, pa.Buffer]:
        """The batch's attributes, and its records in fewer bytes if there is a way."""
        if self._codec is None:
            return _TRANSACTIONAL, content
        compressed = pa.py_buffer(self._codec.compress(memoryview(content)))
        if compressed.size >= content.size:
            return _TRANSACTIONAL, content
        return _TRANSACTIONAL | self._codec.number, pa.foreign_buffer(
            compressed.address, compressed.size, compressed
        )
