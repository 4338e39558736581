"""The requests of Kafka's protocol that are made about transactions past librdkafka, as bytes.

Their versions are those of transactions as librdkafka makes them (KIP-98): partitions are added to the
transaction before anything is written to them, and its end leaves the producer's epoch as it is. Pure: no
socket.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.protocol.wire import Reader, compact_length, compact_text, framed, header

PRODUCE, FIND_COORDINATOR, INIT, ADD_PARTITIONS, END = 0, 10, 22, 24, 26
VERSIONS: Mapping[int, int] = {PRODUCE: 9, FIND_COORDINATOR: 3, INIT: 2, ADD_PARTITIONS: 3, END: 3}
"""Each request's number, and the version it has here."""

_ACKS_ALL = -1
_KEY_IS_TRANSACTIONAL_ID = 1


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What was answered for one partition: 0, or a Kafka error code."""

    topic: str
    partition: int
    error: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered for each partition, and for how long the broker will read nothing more of this
    connection, because its client is beyond a quota (KIP-219)."""

    results: list[PartitionResult]
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class Node:
    """Where a broker is."""

    host: str
    port: int


def find_coordinator_request(correlation_id: int, client_id: str, transactional_id: str) -> bytes:
    body = compact_text(transactional_id) + struct.pack(">b", _KEY_IS_TRANSACTIONAL_ID) + b"\0"
    return framed(_header(FIND_COORDINATOR, correlation_id, client_id) + body)


def find_coordinator_answer(frame: bytes) -> tuple[int, Node]:
    """An error code or 0, and where the transaction's coordinator is."""
    reader = _begin(frame)
    reader.int32()  # for how long the broker throttles: nothing more is asked on this connection
    error = reader.int16()
    reader.text()
    reader.int32()
    return error, Node(reader.text(), reader.int32())


def add_partitions_request(
    correlation_id: int,
    client_id: str,
    transactional_id: str,
    identity: ProducerIdentity,
    partitions: Mapping[str, Sequence[int]],
) -> bytes:
    """The request that asks the coordinator to add these partitions, by topic, to a transaction."""
    body = bytearray(_header(ADD_PARTITIONS, correlation_id, client_id))
    body += _transaction(transactional_id, identity) + compact_length(len(partitions))
    for topic, numbers in partitions.items():
        body += compact_text(topic) + compact_length(len(numbers))
        body += struct.pack(f">{len(numbers)}i", *numbers) + b"\0"
    return framed(bytes(body + b"\0"))


def add_partitions_answer(frame: bytes) -> Answer:
    reader = _begin(frame)
    throttle_ms = reader.int32()
    found: list[PartitionResult] = []
    for _ in range(reader.length()):
        topic = reader.text()
        for _ in range(reader.length()):
            found.append(PartitionResult(topic, reader.int32(), reader.int16()))
            reader.tags()
        reader.tags()
    return Answer(found, throttle_ms)


def produce_request(
    correlation_id: int,
    client_id: str,
    transactional_id: str,
    timeout_ms: int,
    batches: Mapping[str, Sequence[tuple[int, Sequence[bytes | memoryview]]]],
) -> list[bytes | memoryview]:
    """The request that gives the leader of these partitions, by topic, a record batch for each. Batches, and
    what is returned, are in pieces, one behind the other."""
    pieces: list[bytes | memoryview] = []
    between = bytearray(_header(PRODUCE, correlation_id, client_id) + compact_text(transactional_id))
    between += struct.pack(">hi", _ACKS_ALL, timeout_ms) + compact_length(len(batches))
    for topic, partitions in batches.items():
        between += compact_text(topic) + compact_length(len(partitions))
        for partition, batch in partitions:
            between += struct.pack(">i", partition) + compact_length(sum(map(len, batch)))
            pieces += [bytes(between), *batch]
            between = bytearray(b"\0")
        between += b"\0"
    pieces.append(bytes(between + b"\0"))
    return [struct.pack(">i", sum(map(len, pieces))), *pieces]


def produce_answer(frame: bytes) -> Answer:
    reader = _begin(frame)
    found: list[PartitionResult] = []
    for _ in range(reader.length()):
        topic = reader.text()
        for _ in range(reader.length()):
            partition, error = reader.int32(), reader.int16()
            reader.int64()  # the first record's offset
            reader.int64()  # the time that the broker gave
            reader.int64()  # where the log starts
            said = []
            for _ in range(reader.length()):
                record = reader.int32()
                said.append(f"record {record}: {reader.text()}")
                reader.tags()
            message = "; ".join([text for text in [reader.text()] if text] + said)
            reader.tags()
            found.append(PartitionResult(topic, partition, error, message))
        reader.tags()
    return Answer(found, reader.int32())


def end_request(
    correlation_id: int, client_id: str, transactional_id: str, identity: ProducerIdentity, is_commit: bool
) -> bytes:
    """The request that asks the coordinator to commit a transaction, or to abort it."""
    body = _transaction(transactional_id, identity) + struct.pack(">b", is_commit) + b"\0"
    return framed(_header(END, correlation_id, client_id) + body)


def end_answer(frame: bytes) -> int:
    """An error code, or 0: it is decided as it was asked for, and for good."""
    reader = _begin(frame)
    reader.int32()  # for how long the broker throttles
    return reader.int16()


def init_request(correlation_id: int, client_id: str, transactional_id: str, timeout_ms: int) -> bytes:
    """The request for a new epoch of a transactional id: older producers are refused from then on, and the
    transaction that they have open is aborted. `timeout_ms`: of transactions in the new epoch."""
    body = compact_text(transactional_id) + struct.pack(">i", timeout_ms) + b"\0"
    return framed(_header(INIT, correlation_id, client_id) + body)


def init_answer(frame: bytes) -> tuple[int, ProducerIdentity]:
    """An error code or 0, and whom requests of the new epoch are from."""
    reader = _begin(frame)
    reader.int32()  # for how long the broker throttles
    return reader.int16(), ProducerIdentity(reader.int64(), reader.int16())


def _header(api: int, correlation_id: int, client_id: str) -> bytes:
    """The header of a request in a flexible version (KIP-482), which ends with no tagged fields."""
    return header(api, VERSIONS[api], correlation_id, client_id) + b"\0"


def _transaction(transactional_id: str, identity: ProducerIdentity) -> bytes:
    return compact_text(transactional_id) + struct.pack(">qh", identity.producer_id, identity.epoch)


def _begin(frame: bytes) -> Reader:
    """Behind the header, whose correlation id the connection has seen."""
    reader = Reader(memoryview(frame))
    reader.int32()
    reader.tags()
    return reader
