"""MessageFetcher: fetches with confluent_kafka's own objects, one for each record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from onceflow.connectors.kafka.fetch.checked_assignment import NO_EPOCH, CheckedAssignment
from onceflow.connectors.kafka.fetched import HEADERS_TYPE, Details, Fetched, Header, Notice, Wanted
from onceflow.connectors.kafka.reader_splits import RowSplits, SplitTable, last_rows


class MessageFetcher:
    """See Fetcher."""

    def __init__(self, consumer: Consumer, splits: SplitTable, wanted: Wanted) -> None:
        self._consumer = consumer
        self._assignment = CheckedAssignment(consumer)
        self._splits = splits
        self._wanted = wanted

    def assign(self, positions: Sequence[TopicPartition]) -> None:
        self._assignment.assign(positions)

    def unassign(self, positions: Sequence[TopicPartition]) -> None:
        self._assignment.unassign(positions)

    def fetch(self, timeout_ms: int, records_max: int) -> Fetched:
        self._assignment.check()
        # consume(N, t) would wait for all N.
        messages = self._consumer.consume(1, timeout_ms / 1000)
        if messages and records_max > 1:
            messages += self._consumer.consume(records_max - 1, 0)
        return self._assignment.checked(columns_of(messages, self._splits, self._wanted), self._splits)

    def close(self) -> None:
        pass


def columns_of(messages: list[Message], splits: SplitTable, wanted: Wanted) -> Fetched:
    """Records and notices among messages."""
    notices: list[Notice] = []
    if not set(map(type, map(Message.error, messages))) <= {NoneType}:  # rare, and quick to see
        messages, notices = _sort_out(messages, splits)
    count = len(messages)
    times: list[tuple[int, int]] = list(map(Message.timestamp, messages)) if wanted.timestamp else []
    kinds = np.fromiter((kind for kind, _ in times), np.int8, len(times))
    row_split = _split_of(messages, splits)
    return Fetched(
        value=list(map(Message.value, messages)),
        row_split=row_split,
        offset=np.fromiter(map(Message.offset, messages), np.int64, count),
        notices=notices,
        epochs={split: _epoch(messages[row]) for split, row in last_rows(row_split).items()},
        key=list(map(Message.key, messages)) if wanted.key else None,
        timestamp_ms=np.fromiter((ms for _, ms in times), np.int64, count) if wanted.timestamp else None,
        time_kind=kinds if wanted.timestamp else None,
        headers=pa.array(list(map(_headers, messages)), HEADERS_TYPE) if wanted.headers else None,
        details=(lambda row: _details(messages[row])) if wanted.details else None,
    )


def _sort_out(messages: list[Message], splits: SplitTable) -> tuple[list[Message], list[Notice]]:
    records: list[Message] = []
    notices: list[Notice] = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        else:
            split = splits.find(message.topic(), message.partition())
            offset = message.offset()
            notices.append(Notice(error, split, -1 if offset is None else offset, len(records)))
    return records, notices


def _split_of(messages: list[Message], splits: SplitTable) -> RowSplits:
    count = len(messages)
    if not count:
        return np.empty(0, np.uint16)
    partitions = np.fromiter(map(Message.partition, messages), np.int64, count)
    if len(splits.topics) == 1:
        return splits.of_rows(None, partitions)
    names: Iterable[Any] = map(Message.topic, messages)
    topics = map(splits.topics.__getitem__, names)
    return splits.of_rows(np.fromiter(topics, np.int64, count), partitions)


def _epoch(message: Message) -> int:
    epoch = message.leader_epoch()
    return NO_EPOCH if epoch is None else int(epoch)


def _headers(message: Message) -> list[Header]:
    return [{"key": key, "value": value} for key, value in message.headers() or ()]


def _details(message: Message) -> Details:
    kind, time_ms = message.timestamp()
    key: Any = message.key()
    return Details(key, int(time_ms) if kind else None, _headers(message))
