"""KafkaReader: reads the partitions of one subtask, each exactly from its next offset.

One librdkafka consumer with assigned partitions and no group membership: onceflow decides who reads
what. Transaction markers take offsets too, so a partition's next offset after its last record may be
below its end; the end-of-partition event says how far it really is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from onceflow.connectors.kafka.connection import ReaderConnection
from onceflow.connectors.kafka.failures import denied
from onceflow.connectors.kafka.metadata import PartitionKey
from onceflow.connectors.kafka.reader_options import ReaderOptions
from onceflow.connectors.kafka.rows import RowBuilder
from onceflow.connectors.kafka.splits import KafkaSplit, check_range
from onceflow.connectors.kafka.watch import TopicWatch
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError, OnceflowError, Retryable
from onceflow.runtime.records import Int64s

_LOG = logging.getLogger(__name__)
_NO_STOP = np.iinfo(np.int64).max
_QUESTION_TIMEOUT_S = 5.0
_WATCH_INTERVAL_MS = 1_000


class KafkaReader:
    """See SourceReader. Memory is bounded by librdkafka's `queued.max.messages.kbytes`."""

    def __init__(self, options: ReaderOptions, rows: RowBuilder, context: ReaderContext) -> None:
        self._options = options
        self._rows = rows
        self._context = context
        self._watch = TopicWatch(options.kafka, context.clock, _WATCH_INTERVAL_MS)
        self._connection = ReaderConnection(
            options.kafka, options.broker_timeout_ms, context.clock, context.on_wait
        )
        self._consumer = Consumer(options.consumer(context, self._connection))
        self._splits: list[KafkaSplit] = []
        self._ids: tuple[str, ...] = ()
        self._index: dict[PartitionKey, int] = {}
        self._topics: dict[str, int] = {}
        self._table = np.empty((0, 0), np.uint16)  # split by topic and partition
        self._next: Int64s = np.empty(0, np.int64)
        self._stop: Int64s = np.empty(0, np.int64)
        self._active: set[int] = set()
        self._at_end: set[int] = set()
        self._in_doubt: set[int] = set()  # were at their end when their broker went away
        self._reread: set[int] = set()  # to be fetched again from their next offset
        self._failure: OnceflowError | None = None  # for the next poll: what came before it goes first
        self._finished: list[int] = []  # not told yet
        self._told_at_end: frozenset[str] = frozenset()

    # --- Splits ---

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        first = len(self._splits)
        added = [KafkaSplit.from_state(state) for state in splits]
        self._splits += added
        assert len(self._splits) <= np.iinfo(np.uint16).max, "row_split is uint16"
        self._ids = tuple(split.split_id for split in self._splits)
        self._index = {split.key: i for i, split in enumerate(self._splits)}
        self._topics = {topic: i for i, topic in enumerate(sorted({s.topic for s in self._splits}))}
        self._table = np.zeros(
            (len(self._topics), 1 + max((s.partition for s in self._splits), default=0)), np.uint16
        )
        for (topic, partition), i in self._index.items():
            self._table[self._topics[topic], partition] = i
        stops = [_NO_STOP if split.stop_offset is None else split.stop_offset for split in added]
        self._next = np.concatenate([self._next, np.array([s.next_offset for s in added], np.int64)])
        self._stop = np.concatenate([self._stop, np.array(stops, np.int64)])
        self._finished += [first + i for i, split in enumerate(added) if split.is_finished]
        to_read = [first + i for i, split in enumerate(added) if not split.is_finished]
        self._watch.add({self._splits[i].topic: self._splits[i].topic_id for i in to_read})
        self._active.update(to_read)
        self._consumer.incremental_assign(self._positions(to_read))

    def snapshot(self) -> Sequence[SplitState]:
        offsets = self._next.tolist()
        return [
            replace(split, next_offset=offset).state()
            for split, offset in zip(self._splits, offsets, strict=True)
        ]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        if self._options.group_id is None or not splits:
            return
        shown = [KafkaSplit.from_state(state) for state in splits]
        offsets = [TopicPartition(s.topic, s.partition, s.next_offset) for s in shown]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            _LOG.info("offsets of group %s were not published: %s", self._options.group_id, error)

    def close(self) -> None:
        self._watch.close()
        self._consumer.close()

    # --- Reading ---

    def poll(self, timeout_ms: int) -> Fetch | None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._watch.check()
        self._read_again()
        records, ends = self._sort_out(self._consume(0 if self._finished else timeout_ms))
        fetch = self._take(records) if records else None
        for index, end in ends.items():
            self._at_end.add(index)
            # What lies between the last record and the end is markers and aborted records: read, too.
            self._next[index] = max(int(self._next[index]), end)
            self._finish_if_done(index)
        if self._in_doubt or not self._connection.is_sound:
            self._doubt_ends()
            self._connection.check(self._splits[i].key for i in self._active)
        at_end = frozenset(self._ids[i] for i in self._at_end)
        if fetch is None and not self._finished and at_end == self._told_at_end:
            return None
        finished = frozenset(self._ids[i] for i in self._finished)
        self._finished.clear()
        self._told_at_end = at_end
        return replace(fetch or self._build([], *_NOTHING), at_end=at_end, finished=finished)

    def _consume(self, timeout_ms: int) -> list[Message]:
        """What is there, but at most poll_records_max: consume(N, t) would wait for all N."""
        first = self._consumer.consume(1, timeout_ms / 1000)
        return first + self._consumer.consume(self._options.poll_records_max - 1, 0) if first else []

    def _sort_out(self, messages: list[Message]) -> tuple[list[Message], dict[int, int]]:
        """The records, and the ends of splits that have no record after them; errors are noted."""
        if set(map(type, map(Message.error, messages))) <= {NoneType}:  # nearly always, and quick to see
            return messages, {}
        records: list[Message] = []
        ends: dict[int, int] = {}
        for message in messages:
            error = message.error()
            place: Any = (message.topic(), message.partition())
            index = self._index.get(place, -1)
            if error is None:
                records.append(message)
                ends.pop(index, None)
            elif error.code() != KafkaError._PARTITION_EOF:
                self._note(error, index)
            elif index in self._active:
                end: Any = message.offset()
                ends[index] = end
        return records, ends

    def _take(self, messages: list[Message]) -> Fetch:
        """The rows of messages; then, and only then, the splits' next offsets go on."""
        count = len(messages)
        row_split = self._split_of(messages)
        offset = np.fromiter(map(Message.offset, messages), np.int64, count)
        wanted = (offset < self._stop[row_split]) & (offset >= self._next[row_split])
        try:
            if wanted.all():
                fetch = self._build(messages, row_split, offset)
            else:
                kept = [messages[i] for i in np.flatnonzero(wanted).tolist()]
                fetch = self._build(kept, row_split[wanted], offset[wanted])
        except OnceflowError:
            self._reread.update(row_split.tolist())  # nothing of it was handed on
            raise
        ends_of_runs = np.append(np.flatnonzero(np.diff(row_split)), count - 1)
        for index, last in zip(row_split[ends_of_runs].tolist(), offset[ends_of_runs].tolist(), strict=True):
            self._next[index] = max(int(self._next[index]), min(last + 1, int(self._stop[index])))
            self._at_end.discard(index)
            self._in_doubt.discard(index)
            self._finish_if_done(index)
        return fetch

    def _build(self, messages: list[Message], row_split: npt.NDArray[np.uint16], offset: Int64s) -> Fetch:
        rows = self._rows.build(messages)
        if rows.kept is not None:
            row_split, offset = row_split[rows.kept], offset[rows.kept]
            messages = [messages[i] for i in np.flatnonzero(rows.kept).tolist()]
        timestamp_ms = None
        if self._context.with_timestamp:
            times = (message.timestamp()[1] for message in messages)
            timestamp_ms = np.fromiter(times, np.int64, len(messages))
        return Fetch(
            rows.batch,
            row_split,
            self._ids,
            offset if self._context.with_origin else None,
            timestamp_ms,
            rows.dead_letters,
        )

    def _split_of(self, messages: list[Message]) -> npt.NDArray[np.uint16]:
        partitions = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
        if len(self._topics) == 1:
            split: npt.NDArray[np.uint16] = self._table[0, partitions]
        else:
            names: Iterable[Any] = map(Message.topic, messages)
            topics = map(self._topics.__getitem__, names)
            split = self._table[np.fromiter(topics, np.int64, len(messages)), partitions]
        return split

    def _finish_if_done(self, index: int) -> None:
        if index in self._active and self._next[index] >= self._stop[index]:
            self._consumer.incremental_unassign(self._positions([index]))
            for group in (self._active, self._at_end, self._in_doubt, self._reread):
                group.discard(index)
            self._finished.append(index)

    # --- When something is wrong ---

    def _doubt_ends(self) -> None:
        """An end seen before the broker went away may be none any more: ask again once it is back."""
        for index in list(self._at_end):
            if self._connection.is_away(self._splits[index].key):
                self._at_end.discard(index)
                self._in_doubt.add(index)
        for index in list(self._in_doubt):
            if not self._connection.is_away(self._splits[index].key):
                self._in_doubt.discard(index)
                self._reread.add(index)

    def _read_again(self) -> None:
        """Fetch anew from the next offset; the end is told anew, too."""
        indices = sorted(self._reread & self._active)
        self._reread.clear()
        if indices:
            self._consumer.incremental_unassign(self._positions(indices))
            self._consumer.incremental_assign(self._positions(indices))

    def _positions(self, indices: Iterable[int]) -> list[TopicPartition]:
        splits = ((self._splits[i], int(self._next[i])) for i in indices)
        return [TopicPartition(split.topic, split.partition, offset) for split, offset in splits]

    def _note(self, error: KafkaError, index: int) -> None:
        """An error event. What it means is raised by the next poll, so that records before it go on."""
        code = error.code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED or (index >= 0 and index not in self._active):
            return  # the group is for monitors only; a finished split is of no interest
        if index >= 0:
            self._reread.add(index)
        place = self._ids[index] if index >= 0 else "a partition"
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._failure = self._why_out_of_range(index)
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = self._splits[index].topic if index >= 0 else place
            self._failure = denied("read", f"topic {topic!r}", "READ", error.name())
        elif code in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_PARTITION,
            KafkaError._UNKNOWN_TOPIC,
        ):
            self._context.on_wait(f"{place} is unknown to the broker at the moment")  # the watch decides
        else:
            reason = self._options.kafka.redact(error.str())
            self._failure = Retryable(f"{place} can't be read: {error.name()}: {reason}")

    def _why_out_of_range(self, index: int) -> OnceflowError:
        split = replace(self._splits[index], next_offset=int(self._next[index]))
        where = TopicPartition(split.topic, split.partition)
        try:
            low, high = self._consumer.get_watermark_offsets(where, timeout=_QUESTION_TIMEOUT_S, cached=False)
            check_range(split, low, high)
        except DataLossError as loss:
            return loss
        except KafkaException as error:
            return Retryable(
                f"{split.split_id} can't be read at offset {split.next_offset}: {error.args[0].str()}"
            )
        return Retryable(
            f"{split.split_id} could not be read at offset {split.next_offset}, which is there now"
        )


_NOTHING = (np.empty(0, np.uint16), np.empty(0, np.int64))
