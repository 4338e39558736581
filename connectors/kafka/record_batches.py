"""The record batches of one partition's answer: which of them hold records to hand on.

A reader of committed records gets everything up to the last stable offset, and the list of transactions
in it that were aborted; it leaves their records out itself (KIP-98). Control batches are markers of
transactions, never records. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
import pyarrow as pa

from onceflow.connectors.kafka import record_kernels as kernels
from onceflow.connectors.kafka.fetch_protocol import Aborted
from onceflow.connectors.kafka.wire import ProtocolError

_HEADER_BYTES = 61
_COMPRESSION, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT_MARKER = 0
_MARKER_KEY_BYTES = 4
_SHORTEST_MARKER_BYTES = 10


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One, of which nothing is read yet but its header. Addresses are into the answer it came with."""

    base_offset: int
    last_offset: int
    records_at: int
    records_end: int
    count: int
    compression: int
    """Kafka's number of a codec; 0: none."""
    has_append_time: bool
    base_time_ms: int
    max_time_ms: int
    crc: int
    crc_at: int

    def check(self) -> None:
        """Raises ProtocolError if its bytes are not those that were written."""
        if _crc(self.crc_at, self.records_end) != self.crc:
            raise ProtocolError(f"the checksum of the batch at offset {self.base_offset} is wrong")


def record_batches(
    address: int, size: int, from_offset: int, aborted: Sequence[Aborted]
) -> tuple[list[RecordBatch], int]:
    """The batches whose records are to be handed on, not checked yet, and the offset that follows on all that
    are there.

    Records below from_offset, in the first batch, are still to be left out. Raises ProtocolError for bytes
    that are no batches of version 2.
    """
    table = np.empty((size // _HEADER_BYTES, kernels.BATCH_FIELDS), np.int64)
    found = kernels.walk(address, size, from_offset, table)
    if found == kernels.MALFORMED:
        raise ProtocolError(f"what follows on offset {from_offset} are no record batches of version 2")
    filter_ = _AbortedFilter(aborted)
    rows = table[:found].tolist()
    batches: list[RecordBatch] = []
    for row in rows:
        batch = _batch(row)
        if filter_.keeps(row):
            batches.append(batch)
        else:
            batch.check()  # it may be a changed byte that says so
    return batches, rows[-1][kernels.LAST_OFFSET] + 1 if rows else from_offset


class _AbortedFilter:
    """Is shown every batch, in the order of the offsets."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._open: set[int] = set()
        """Producers in the middle of a transaction that was aborted."""

    def keeps(self, row: Sequence[int]) -> bool:
        attributes, producer = row[kernels.ATTRIBUTES], row[kernels.PRODUCER]
        while self._coming and self._coming[-1].first_offset <= row[kernels.LAST_OFFSET]:
            self._open.add(self._coming.pop().producer_id)
        if attributes & _CONTROL:
            if self._open and _is_abort_marker(row):
                self._open.discard(producer)
            return False
        return not (attributes & _TRANSACTIONAL and producer in self._open)


def _is_abort_marker(row: Sequence[int]) -> bool:
    """Its only record's key: a version and a type, two bytes each. The record's length, its deltas and the
    key's length are one byte each, as in all that brokers write; another form is none that we know."""
    start, end = row[kernels.RECORDS_AT], row[kernels.RECORDS_END]
    if end - start < _SHORTEST_MARKER_BYTES:
        raise ProtocolError(f"the marker at offset {row[kernels.BASE_OFFSET]} is cut off")
    length, _, _, _, key_length, _, kind = struct.unpack_from(">bbbbbhh", _bytes(start, end))
    if length <= 0 or key_length != 2 * _MARKER_KEY_BYTES:  # zigzag: twice the number
        raise ProtocolError(f"the marker at offset {row[kernels.BASE_OFFSET]} is of an unknown form")
    return bool(kind == _ABORT_MARKER)


def _batch(row: Sequence[int]) -> RecordBatch:
    attributes = row[kernels.ATTRIBUTES]
    return RecordBatch(
        base_offset=row[kernels.BASE_OFFSET],
        last_offset=row[kernels.LAST_OFFSET],
        records_at=row[kernels.RECORDS_AT],
        records_end=row[kernels.RECORDS_END],
        count=row[kernels.COUNT],
        compression=attributes & _COMPRESSION,
        has_append_time=bool(attributes & _LOG_APPEND_TIME),
        base_time_ms=row[kernels.BASE_TIME],
        max_time_ms=row[kernels.MAX_TIME],
        crc=row[kernels.CRC],
        crc_at=row[kernels.CRC_AT],
    )


def _crc(start: int, end: int) -> int:
    found: int = google_crc32c.value(_bytes(start, end))
    return found


def _bytes(start: int, end: int) -> pa.Buffer:
    """Bytes at an address, not copied."""
    return pa.foreign_buffer(start, end - start)
