"""The record batches of one partition's answer: which of them hold records to hand on.

A reader of committed records gets everything up to the last stable offset, and the list of transactions
in it that were aborted; it leaves their records out itself (KIP-98). Control batches are markers of
transactions, never records. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import pyarrow as pa

from onceflow.connectors.kafka.protocol.fetch_messages import Aborted
from onceflow.connectors.kafka.protocol.wire import ProtocolError

_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader's epoch, version, checksum, attributes, last offset's delta, first and highest
time, producer's id and epoch, first sequence number, count."""
_BEFORE_LENGTH, _BEFORE_CRC = 12, 21
"""The first bytes of a batch, which its length and its checksum do not count."""
_VERSION = 2
_OFFSET_MAX = (1 << 63) - 1
_COMPRESSION, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT_MARKER = 0
_MARKER_KEY_BYTES = 4
_SHORTEST_MARKER_BYTES = 10


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A record batch of which nothing is read yet but its header. Addresses are into the answer it came
    with."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    records_at: int
    records_end: int
    count: int
    attributes: int
    base_time_ms: int
    max_time_ms: int
    producer_id: int
    crc: int
    crc_at: int
    """The checksum is of the bytes from here to records_end."""

    @property
    def compression(self) -> int:
        """Kafka's number of a codec; 0: none."""
        return self.attributes & _COMPRESSION

    @property
    def has_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    def check(self) -> None:
        """Raises ProtocolError if its bytes are not those that were written."""
        if _crc(self.crc_at, self.records_end) != self.crc:
            raise ProtocolError(f"the checksum of the batch at offset {self.base_offset} is wrong")


class Batches(NamedTuple):
    """What an answer brought of one partition."""

    wanted: list[RecordBatch]
    """Batches whose records are to be handed on, not checked yet."""
    next_offset: int
    """The offset behind all batches that are there."""
    leader_epoch: int | None
    """The leader's epoch of the last batch that is there; None: there is none."""


def record_batches(address: int, size: int, from_offset: int, aborted: Sequence[Aborted]) -> Batches:
    """Records below from_offset, in the first batch, are still to be left out. Raises ProtocolError for bytes
    that are no batches of version 2, or of which none is whole and reaches from_offset: a broker sends at
    least one such batch, however large it is, or no bytes at all, so the same question would never end.
    """
    filter_ = _AbortedFilter(aborted)
    batches: list[RecordBatch] = []
    next_offset, epoch = from_offset, None
    for batch in _walk(address, size, from_offset):
        next_offset, epoch = batch.last_offset + 1, batch.leader_epoch
        if filter_.keeps(batch):
            batches.append(batch)
        else:
            batch.check()  # it may be a changed byte that says so
    if size and epoch is None:
        raise ProtocolError(f"among {size} bytes from offset {from_offset} on is no whole record batch")
    return Batches(batches, next_offset, epoch)


def _walk(address: int, size: int, from_offset: int) -> Iterator[RecordBatch]:
    """The batches in these bytes, those that end before from_offset left out. The last one may be cut off and
    is left out then."""
    data = memoryview(_bytes(address, address + size))
    at, next_offset = 0, -1
    while size - at >= _HEADER.size:
        base, length, epoch, version, crc, attributes, delta, first_ms, max_ms, producer, _, _, count = (
            _HEADER.unpack_from(data, at)
        )
        after, last = at + _BEFORE_LENGTH + length, base + delta
        if version != _VERSION or after < at + _HEADER.size:
            raise _malformed(from_offset)
        if after > size:
            return
        if base < next_offset or not base <= last < _OFFSET_MAX or count < 0:
            raise _malformed(from_offset)
        next_offset = last + 1
        if last >= from_offset:
            records_at, records_end = address + at + _HEADER.size, address + after
            crc_at = address + at + _BEFORE_CRC
            yield RecordBatch(
                base,
                last,
                epoch,
                records_at,
                records_end,
                count,
                attributes,
                first_ms,
                max_ms,
                producer,
                crc,
                crc_at,
            )
        at = after


def _malformed(from_offset: int) -> ProtocolError:
    return ProtocolError(f"what follows on offset {from_offset} are no record batches of version 2")


class _AbortedFilter:
    """Is shown every batch, in the order of the offsets."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._open: set[int] = set()
        """Producers in the middle of a transaction that was aborted."""

    def keeps(self, batch: RecordBatch) -> bool:
        attributes, producer = batch.attributes, batch.producer_id
        while self._coming and self._coming[-1].first_offset <= batch.last_offset:
            self._open.add(self._coming.pop().producer_id)
        if attributes & _CONTROL:
            if self._open and _is_abort_marker(batch):
                self._open.discard(producer)
            return False
        return not (attributes & _TRANSACTIONAL and producer in self._open)


def _is_abort_marker(batch: RecordBatch) -> bool:
    """Whether a control batch is an abort marker, by its only record's key: a version and a type, two bytes
    each. The record's length, its deltas and the key's length are one byte each, as in all that brokers
    write; another form is none that we know."""
    start, end = batch.records_at, batch.records_end
    if end - start < _SHORTEST_MARKER_BYTES:
        raise ProtocolError(f"the marker at offset {batch.base_offset} is cut off")
    length, _, _, _, key_length, _, kind = struct.unpack_from(">bbbbbhh", _bytes(start, end))
    if length <= 0 or key_length != 2 * _MARKER_KEY_BYTES:  # zigzag: twice the number
        raise ProtocolError(f"the marker at offset {batch.base_offset} is of an unknown form")
    return bool(kind == _ABORT_MARKER)


def _crc(start: int, end: int) -> int:
    found: int = google_crc32c.value(_bytes(start, end))
    return found


def _bytes(start: int, end: int) -> pa.Buffer:
    """Bytes at an address, not copied."""
    return pa.foreign_buffer(start, end - start)
