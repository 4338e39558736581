"""BulkFetcher: copies librdkafka's messages into Arrow, without an object for each.

confluent_kafka's callbacks must only run inside that package's own calls: run from anywhere else, they
end the process. So the assigned partitions' queues, which hold records, errors and ends and never a
callback, are forwarded to a queue of our own, and only that one is read directly. All else stays on the
consumer's queue, which `consume()` serves before each fetch. Import only if kernels are enabled.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow.connectors.kafka.arrow_columns import BINARY_BYTES_MAX
from onceflow.connectors.kafka.fetch.checked_assignment import CheckedAssignment
from onceflow.connectors.kafka.fetch.per_message import columns_of
from onceflow.connectors.kafka.fetched import Details, Fetched, Header, Notice, Wanted
from onceflow.connectors.kafka.librdkafka.library import CMessage, Library
from onceflow.connectors.kafka.librdkafka.message_columns import MessageBatch
from onceflow.connectors.kafka.metadata import PartitionKey
from onceflow.connectors.kafka.reader_splits import RowSplits, SplitTable, last_rows
from onceflow.runtime.records import Int64s

_LOG = logging.getLogger(__name__)
_EVENTS_MAX = 1_000
_RECORDS_MANY = 10_000
_FORWARD_EVERY_S = 0.05
_BYTES_MAX = 16 << 20
_END = KafkaError(KafkaError._PARTITION_EOF)  # by far the most frequent one, so made once


class BulkFetcher:
    """See Fetcher. Holds the messages of the last fetch if `wanted.details`."""

    def __init__(
        self,
        library: Library,
        handle: int,
        consumer: Consumer,
        splits: SplitTable,
        wanted: Wanted,
        room: int,
        binary_bytes_max: int = BINARY_BYTES_MAX,
    ) -> None:
        """`handle`: the consumer's, see Library.handle. `room`: a fetch brings no more records."""
        self._library = library
        self._handle = handle
        self._consumer = consumer
        self._assignment = CheckedAssignment(consumer)
        self._splits = splits
        self._wanted = wanted
        self._messages = MessageBatch(library, room, binary_bytes_max)
        self._room = room
        self._queue: int | None = library.rd_kafka_queue_new(handle)
        self._partitions: dict[PartitionKey, int] = {}
        self._forward_at_s = 0.0
        self._lost: set[int] = set()
        self._limit = self._room
        self._held = 0
        self._is_behind = False
        self._nothing = self._columns(0, [])  # an idle slot fetches it 200 times a second

    @property
    def is_behind(self) -> bool:
        """Whether the last fetch brought as many records as it may, or very many: librdkafka has more."""
        return self._is_behind

    # --- Partitions ---

    def assign(self, positions: Sequence[TopicPartition]) -> None:
        for position in positions:
            key = (position.topic, position.partition)
            self._let_go(key)
            queue = self._library.rd_kafka_queue_get_partition(self._handle, key[0].encode(), key[1])
            assert queue, "a consumer has a queue for each partition"
            self._partitions[key] = queue
            self._library.rd_kafka_queue_forward(queue, self._queue)
        self._assignment.assign(positions)

    def unassign(self, positions: Sequence[TopicPartition]) -> None:
        self._assignment.unassign(positions)
        for position in positions:
            self._let_go((position.topic, position.partition))

    def close(self) -> None:
        if self._queue is None:
            return
        self._release()
        for key in list(self._partitions):
            self._let_go(key)
        self._library.rd_kafka_queue_destroy(self._queue)
        self._queue = None

    def _let_go(self, key: PartitionKey) -> None:
        self._lost.discard(self._splits.find(*key))
        queue = self._partitions.pop(key, None)
        if queue is not None:
            self._library.rd_kafka_queue_destroy(queue)  # only our reference

    def _forward_again(self) -> None:
        """A partition that is assigned anew soon after it was let go: librdkafka ends the first reading
        later, on a thread of its own, and takes our forwarding with it."""
        now_s = time.monotonic()
        if now_s >= self._forward_at_s:
            self._forward_at_s = now_s + _FORWARD_EVERY_S
            for queue in self._partitions.values():
                self._library.rd_kafka_queue_forward(queue, self._queue)

    # --- Fetching ---

    def fetch(self, timeout_ms: int, records_max: int) -> Fetched:
        assert self._queue is not None, "fetch after close"
        self._release()
        notices = self._serve()
        self._forward_again()
        self._assignment.check()
        most = min(self._limit, records_max)
        count = self._consume(0, 0, most)
        if not count and timeout_ms > 0 and not notices:
            count = self._consume(timeout_ms, 0, 1)  # it would wait for all that are asked for
            if count and most > 1:
                count += self._consume(0, 1, most - 1)
        self._is_behind = count >= min(most, _RECORDS_MANY)
        if not count and not notices and not self._lost:
            return self._nothing
        fetched = self._assignment.checked(self._columns(count, notices), self._splits)
        if not self._lost:
            return fetched
        return replace(fetched.without(self._lost), lost=frozenset(self._lost))

    def _serve(self) -> list[Notice]:
        """Callbacks, and errors that are of no partition. Records have no business here; if there are
        some, what comes after them must not be taken before them."""
        messages = self._consumer.consume(_EVENTS_MAX, 0)
        if not messages:
            return []
        for message in messages:
            key: Any = (message.topic(), message.partition())
            if message.error() is None and key in self._partitions:
                _LOG.warning("records of %s-%s came another way and are fetched again", *key)
                self._lost.add(self._splits.find(*key))
        return list(columns_of(messages, self._splits, Wanted()).notices)

    def _consume(self, timeout_ms: int, first: int, most: int) -> int:
        """Takes messages to position `first` of `_messages`; how many."""
        address = self._messages.addresses.ctypes.data + 8 * first
        count: int = self._library.rd_kafka_consume_batch_queue(self._queue, timeout_ms, address, most)
        if count < 0:
            raise KafkaException(KafkaError(self._library.rd_kafka_last_error()))
        return count

    def _columns(self, count: int, notices: list[Notice]) -> Fetched:
        wanted, messages = self._wanted, self._messages
        records, runs, failed, size = messages.survey(count)
        self._held = records
        notices += [self._notice(address, after) for address, after in failed.tolist()]
        times, kinds = messages.timestamps() if wanted.timestamp else (None, None)
        headers = messages.headers() if wanted.headers else None
        size += headers.nbytes if headers is not None else 0
        row_split = self._row_split(records, runs)
        fetched = Fetched(
            value=messages.gather(CMessage.payload.offset),
            row_split=row_split,
            offset=messages.offsets(),
            notices=notices,
            epochs=self._epochs(row_split),
            key=messages.gather(CMessage.key.offset) if wanted.key else None,
            timestamp_ms=times,
            time_kind=kinds,
            headers=headers,
            details=self._details if wanted.details else None,
        )
        if records:
            self._limit = max(1, min(self._room, _BYTES_MAX // max(1, size // records)))
        if not wanted.details:
            self._release()
        return fetched

    def _row_split(self, count: int, runs: Int64s) -> RowSplits:
        """A topic's address is looked up anew each time: another topic's may be the same later."""
        if not count:
            return np.empty(0, np.uint16)
        firsts, topics, partitions = runs.T
        numbers: Int64s | None = None
        if len(self._splits.topics) > 1:  # runs may be short, so nothing here is done for each
            addresses, which = np.unique(topics, return_inverse=True)
            names = map(self._topic, addresses.tolist())
            numbers = np.fromiter(map(self._splits.topics.__getitem__, names), np.int64)[which]
        return np.repeat(self._splits.of_rows(numbers, partitions), np.diff(firsts, append=count))

    def _epochs(self, row_split: RowSplits) -> dict[int, int]:
        ask, addresses = self._library.rd_kafka_message_leader_epoch, self._messages.addresses
        return {split: ask(int(addresses[row])) for split, row in last_rows(row_split).items()}

    def _topic(self, address: int | None) -> str:
        name: bytes | None = self._library.rd_kafka_topic_name(address) if address else None
        return "" if name is None else name.decode()

    # --- Single messages ---

    def _notice(self, address: int, after: int) -> Notice:
        message = CMessage.from_address(address)
        error = _END
        if message.err != KafkaError._PARTITION_EOF:
            text = ctypes.string_at(message.payload, message.len).decode(errors="replace")
            error = KafkaError(message.err, text if message.len else None)
        split = self._splits.find(self._topic(message.rkt), message.partition)
        notice = Notice(error, split, message.offset, after)
        self._library.rd_kafka_message_destroy(address)
        return notice

    def _details(self, row: int) -> Details:
        assert row < self._held, "details of the last fetch only"
        address = int(self._messages.addresses[row])
        message = CMessage.from_address(address)
        kind = ctypes.c_int(0)
        time_ms = self._library.rd_kafka_message_timestamp(address, ctypes.byref(kind))
        key = ctypes.string_at(message.key, message.key_len) if message.key else None
        return Details(key, time_ms if kind.value else None, self._headers(address))

    def _headers(self, address: int) -> list[Header]:
        found = self._library.headers(address)
        return [{"key": name.decode(errors="replace"), "value": value} for name, value in found]

    def _release(self) -> None:
        self._messages.release()
        self._held = 0
