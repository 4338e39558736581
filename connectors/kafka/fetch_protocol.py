"""The two requests of Kafka's protocol that a direct fetch needs, as bytes: ApiVersions and Fetch.

Fetch is spoken in version 13, the first that names topics by their ids (KIP-516): a topic that was made
anew under its name is another one. Everything is big-endian; in flexible versions (KIP-482) lengths are
varints, one more than what they count, and each structure ends in tagged fields. Pure: no socket.
See https://kafka.apache.org/protocol
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from onceflow.connectors.kafka.metadata import Isolation

FETCH_VERSION = 13

_API_VERSIONS, _FETCH = 18, 1
_CONSUMER = -1  # a replica's number, or this
_NO_SESSION, _NO_EPOCH = 0, -1
_TOPIC_ID_BYTES = 16


class ProtocolError(Exception):
    """An answer that is not what this version of the protocol says."""


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """What is asked of one partition."""

    topic_id: bytes
    """16 bytes."""
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction that was aborted: this producer's records from first_offset up to its abort marker."""

    producer_id: int
    first_offset: int


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


def fetch_versions_request(correlation_id: int, client_id: str) -> bytes:
    """ApiVersions 0: which versions of each request the broker speaks."""
    return _framed(_header(_API_VERSIONS, 0, correlation_id, client_id))


def fetch_versions(frame: memoryview) -> tuple[int, int]:
    """The lowest and the highest version of Fetch, from the answer to fetch_versions_request (without its
    length)."""
    try:
        _, error, count = struct.unpack_from(">ihi", frame)
        if error:
            raise ProtocolError(f"ApiVersions is answered with error {error}")
        for number in range(count):
            key, lowest, highest = struct.unpack_from(">hhh", frame, 10 + 6 * number)
            if key == _FETCH:
                return lowest, highest
    except struct.error as error:
        raise ProtocolError(f"the answer to ApiVersions is cut off: {error}") from error
    raise ProtocolError("the broker does not speak of Fetch")


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
    body = bytearray(_header(_FETCH, FETCH_VERSION, correlation_id, client_id) + b"\0")
    level = 1 if isolation == "read_committed" else 0
    body += struct.pack(">iiiibii", _CONSUMER, wait_ms_max, 1, bytes_max, level, _NO_SESSION, _NO_EPOCH)
    runs: list[tuple[bytes, list[FetchPartition]]] = []
    for each in wanted:
        if not runs or runs[-1][0] != each.topic_id:
            runs.append((each.topic_id, []))
        runs[-1][1].append(each)
    body += _length(len(runs))
    for topic_id, partitions in runs:
        body += topic_id + _length(len(partitions))
        for each in partitions:
            # No leader epoch is known, none was fetched last, no log start: this is no replica.
            body += struct.pack(">iiqiqi", each.partition, -1, each.offset, -1, -1, partition_bytes_max)
            body += b"\0"
        body += b"\0"
    body += b"\1\1\0"  # no forgotten topics, no rack, no tags
    return _framed(bytes(body))


def fetch_answer(frame: memoryview) -> tuple[int, list[FetchedPartition]]:
    """The correlation id and the partitions of an answer to fetch_request (without its length). Raises
    ProtocolError for one that is malformed, or refused as a whole."""
    reader = _Reader(frame)
    correlation_id = reader.int32()
    reader.tags()
    reader.int32()  # for how long the broker throttles: it does so by itself
    error = reader.int16()
    reader.int32()
    if error:
        raise ProtocolError(f"Fetch is answered with error {error}")
    partitions: list[FetchedPartition] = []
    for _ in range(reader.length()):
        topic_id = reader.raw(_TOPIC_ID_BYTES)
        partitions += [_partition(reader, topic_id) for _ in range(reader.length())]
        reader.tags()
    reader.tags()
    return correlation_id, partitions


def _partition(reader: _Reader, topic_id: bytes) -> FetchedPartition:
    number, error = reader.int32(), reader.int16()
    high_watermark, last_stable_offset = reader.int64(), reader.int64()
    reader.int64()  # where the log starts
    aborted = []
    for _ in range(reader.length()):
        aborted.append(Aborted(reader.int64(), reader.int64()))
        reader.tags()
    reader.int32()  # a replica that would be nearer: none without a rack
    start, end = reader.skip(reader.length())
    reader.tags()
    return FetchedPartition(
        topic_id, number, error, high_watermark, last_stable_offset, tuple(aborted), start, end
    )


class _Reader:
    """Reads a frame from its beginning to its end."""

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame
        self._at = 0

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def length(self) -> int:
        """Of a compact array, or of compact bytes; none is 0."""
        return max(0, self._varint() - 1)

    def raw(self, count: int) -> bytes:
        start, end = self.skip(count)
        return bytes(self._frame[start:end])

    def skip(self, count: int) -> tuple[int, int]:
        """Where it begins and ends."""
        start, self._at = self._at, self._at + count
        if self._at > len(self._frame):
            raise ProtocolError(f"the answer is cut off: {count} bytes from {start} of {len(self._frame)}")
        return start, self._at

    def tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self.skip(self._varint())

    def _number(self, form: str, size: int) -> int:
        start, _ = self.skip(size)
        found: int = struct.unpack_from(form, self._frame, start)[0]
        return found

    def _varint(self) -> int:
        value = shift = 0
        while shift < 35:
            start, _ = self.skip(1)
            byte = self._frame[start]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ProtocolError("a length in the answer is longer than any")


def _header(api: int, version: int, correlation_id: int, client_id: str) -> bytes:
    name = client_id.encode()
    return struct.pack(">hhih", api, version, correlation_id, len(name)) + name


def _length(count: int) -> bytes:
    """Of a compact array."""
    value, encoded = count + 1, bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
