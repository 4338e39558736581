"""The request of Kafka's protocol that a direct fetch makes, as bytes: Fetch.

It is spoken in version 13, the first that names topics by their ids (KIP-516): a topic that was made
anew under its name is another one. Pure: no socket.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from onceflow.connectors.kafka.options import Isolation
from onceflow.connectors.kafka.protocol.wire import ProtocolError, Reader, compact_length, framed, header

FETCH = 1
VERSION = 13
"""The request's number and version."""

_CONSUMER = -1  # a replica's number, or this
_NO_SESSION, _NO_EPOCH, _NO_LOG_START = 0, -1, -1
_TOPIC_ID_BYTES = 16
_DIVERGING_EPOCH = 0
"""The number of a tagged field."""


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """What is asked of one partition."""

    topic_id: bytes
    """The topic's id, 16 bytes."""
    partition: int
    offset: int
    last_epoch: int
    """The leader's epoch of the batch before the offset; NO_EPOCH: it is not known."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction that was aborted: this producer's records from first_offset up to its abort marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where the broker's log has its last batch of the epoch that was asked for, or of the one before it."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What was answered for one partition."""

    topic_id: bytes
    partition: int
    error: int
    """0, or a Kafka error code: then the rest says nothing."""
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[Aborted, ...]
    start: int
    """Where its record batches begin in the frame."""
    end: int
    diverging: EpochEnd | None = None
    """The broker's log is not the one that was read: it has no such offset of the epoch that was named."""


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What was answered to one request."""

    correlation_id: int
    throttle_ms: int
    """How long the broker reads nothing more from this connection: a quota of the client is used up."""
    partitions: Sequence[FetchedPartition]


def fetch_request(
    correlation_id: int,
    client_id: str,
    isolation: Isolation,
    wanted: Sequence[FetchPartition],
    *,
    wait_ms_max: int,
    bytes_max: int,
    partition_bytes_max: int,
) -> bytes:
    """Fetch 13, without a session. Partitions are served in this order until bytes_max are there."""
    body = bytearray(header(FETCH, VERSION, correlation_id, client_id) + b"\0")
    level = 1 if isolation == "read_committed" else 0
    body += struct.pack(">iiiibii", _CONSUMER, wait_ms_max, 1, bytes_max, level, _NO_SESSION, _NO_EPOCH)
    runs: list[tuple[bytes, list[FetchPartition]]] = []
    for each in wanted:
        if not runs or runs[-1][0] != each.topic_id:
            runs.append((each.topic_id, []))
        runs[-1][1].append(each)
    body += compact_length(len(runs))
    for topic_id, partitions in runs:
        body += topic_id + compact_length(len(partitions))
        for each in partitions:
            # The leader's present epoch is not known: a follower that has the offset may answer, too.
            epochs = _NO_EPOCH, each.offset, each.last_epoch
            body += struct.pack(">iiqiqi", each.partition, *epochs, _NO_LOG_START, partition_bytes_max)
            body += b"\0"
        body += b"\0"
    body += b"\1\1\0"  # no forgotten topics, no rack, no tags
    return framed(bytes(body))


def fetch_answer(frame: memoryview) -> FetchAnswer:
    """The answer to fetch_request (without its length). Raises ProtocolError for one that is malformed, or
    refused as a whole."""
    reader = Reader(frame)
    correlation_id = reader.int32()
    reader.tags()
    throttle_ms = reader.int32()
    error = reader.int16()
    reader.int32()
    if error:
        raise ProtocolError(f"Fetch is answered with error {error}")
    partitions: list[FetchedPartition] = []
    for _ in range(reader.length()):
        topic_id = reader.raw(_TOPIC_ID_BYTES)
        partitions += [_partition(reader, frame, topic_id) for _ in range(reader.length())]
        reader.tags()
    reader.tags()
    return FetchAnswer(correlation_id, throttle_ms, partitions)


def _partition(reader: Reader, frame: memoryview, topic_id: bytes) -> FetchedPartition:
    number, error = reader.int32(), reader.int16()
    high_watermark, last_stable_offset = reader.int64(), reader.int64()
    reader.int64()  # where the log starts
    aborted = []
    for _ in range(reader.length()):
        aborted.append(Aborted(reader.int64(), reader.int64()))
        reader.tags()
    reader.int32()  # a replica that would be nearer: none without a rack
    start, end = reader.skip(reader.length())
    diverging = reader.tags().get(_DIVERGING_EPOCH)
    last = None if diverging is None else EpochEnd(*struct.unpack_from(">iq", frame, diverging[0]))
    return FetchedPartition(
        topic_id,
        number,
        error,
        high_watermark,
        last_stable_offset,
        tuple(aborted),
        start,
        end,
        None if last is None or last.epoch < 0 else last,
    )
