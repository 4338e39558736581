"""KafkaReader: reads the partitions of one subtask, each exactly from its next offset.

One librdkafka consumer with assigned partitions and no group membership: onceflow decides who reads
what. Transaction markers take offsets too, so a partition's next offset after its last record may be
below its end; the end-of-partition event says how far it really is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow.connectors.kafka.connection import ReaderConnection
from onceflow.connectors.kafka.failures import denied
from onceflow.connectors.kafka.fetch import Fetched, Notice
from onceflow.connectors.kafka.fetch_choice import open_fetcher
from onceflow.connectors.kafka.pace import Pace
from onceflow.connectors.kafka.reader_options import ReaderOptions
from onceflow.connectors.kafka.reader_splits import SplitTable
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
        settings = options.consumer(context, self._connection)
        self._consumer = Consumer(settings)
        self._table = SplitTable()
        self._wanted = replace(rows.wanted, timestamp=rows.wanted.timestamp or context.with_timestamp)
        self._fetcher = open_fetcher(
            self._consumer, settings, self._table, self._wanted, options.poll_records_max
        )
        self._next: Int64s = np.empty(0, np.int64)
        self._stop: Int64s = np.empty(0, np.int64)
        self._active: set[int] = set()
        self._at_end: set[int] = set()
        self._in_doubt: set[int] = set()  # were at their end when their broker went away
        self._reread: set[int] = set()  # to be fetched again from their next offset
        self._failure: OnceflowError | None = None  # for the next poll: what came before it goes first
        self._finished: list[int] = []  # not told yet
        self._told_at_end: frozenset[str] = frozenset()
        self._pace = Pace(context.clock)

    # --- Splits ---

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        first = len(self._table.splits)
        added = [KafkaSplit.from_state(state) for state in splits]
        self._table.add(added)
        stops = [_NO_STOP if split.stop_offset is None else split.stop_offset for split in added]
        self._next = np.concatenate([self._next, np.array([s.next_offset for s in added], np.int64)])
        self._stop = np.concatenate([self._stop, np.array(stops, np.int64)])
        self._finished += [first + i for i, split in enumerate(added) if split.is_finished]
        to_read = [first + i for i, split in enumerate(added) if not split.is_finished]
        self._watch.add({self._table.splits[i].topic: self._table.splits[i].topic_id for i in to_read})
        self._active.update(to_read)
        self._fetcher.assign(self._positions(to_read))

    def snapshot(self) -> Sequence[SplitState]:
        offsets = self._next.tolist()
        return [
            replace(split, next_offset=offset).state()
            for split, offset in zip(self._table.splits, offsets, strict=True)
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
        self._fetcher.close()
        self._consumer.close()

    # --- Reading ---

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if timeout_ms == 0 and self._pace.is_gathering:
            return None
        self._watch.check()
        self._read_again()
        fetched = self._fetcher.fetch(0 if self._finished else timeout_ms, records_max)
        if fetched.notices or len(fetched):
            self._pace.took(len(fetched), records_max)
        self._reread.update(fetched.lost)
        ends = self._ends(fetched) if fetched.notices else {}
        fetch = self._take(fetched) if len(fetched) else None
        for index, end in ends.items():
            self._at_end.add(index)
            # What lies between the last record and the end is markers and aborted records: read, too.
            self._next[index] = max(int(self._next[index]), end)
            self._finish_if_done(index)
        if self._in_doubt or not self._connection.is_sound:
            self._doubt_ends()
            self._connection.check(self._table.splits[i].key for i in self._active)
        at_end = frozenset(self._table.ids[i] for i in self._at_end)
        if fetch is None and not self._finished and at_end == self._told_at_end:
            return None
        finished = frozenset(self._table.ids[i] for i in self._finished)
        self._finished.clear()
        self._told_at_end = at_end
        return replace(fetch or self._build(fetched), at_end=at_end, finished=finished)

    def _ends(self, fetched: Fetched) -> dict[int, int]:
        """The ends of splits that have no record after them; errors are noted."""
        ends: dict[int, int] = {}
        for notice in fetched.notices:
            if notice.error.code() != KafkaError._PARTITION_EOF:
                self._note(notice)
            elif notice.split in self._active:
                ends.pop(notice.split, None)
                if notice.split not in fetched.row_split[notice.after :]:
                    ends[notice.split] = notice.offset
        return ends

    def _take(self, fetched: Fetched) -> Fetch:
        """The rows of records; then, and only then, the splits' next offsets go on."""
        row_split, offset = fetched.row_split, fetched.offset
        wanted = (offset < self._stop[row_split]) & (offset >= self._next[row_split])
        try:
            fetch = self._build(fetched.filter(wanted))
        except OnceflowError:
            self._reread.update(row_split.tolist())  # nothing of it was handed on
            raise
        ends_of_runs = np.append(np.flatnonzero(np.diff(row_split)), len(fetched) - 1)
        for index, last in zip(row_split[ends_of_runs].tolist(), offset[ends_of_runs].tolist(), strict=True):
            self._next[index] = max(int(self._next[index]), min(last + 1, int(self._stop[index])))
            self._at_end.discard(index)
            self._in_doubt.discard(index)
            self._finish_if_done(index)
        return fetch

    def _build(self, fetched: Fetched) -> Fetch:
        rows = self._rows.build(fetched, self._table)
        row_split, offset, timestamp_ms = fetched.row_split, fetched.offset, fetched.timestamp_ms
        if rows.kept is not None:
            row_split, offset = row_split[rows.kept], offset[rows.kept]
            timestamp_ms = None if timestamp_ms is None else timestamp_ms[rows.kept]
        return Fetch(
            rows.batch,
            row_split,
            self._table.ids,
            offset if self._context.with_origin else None,
            timestamp_ms if self._context.with_timestamp else None,
            rows.dead_letters,
        )

    def _finish_if_done(self, index: int) -> None:
        if index in self._active and self._next[index] >= self._stop[index]:
            self._fetcher.unassign(self._positions([index]))
            for group in (self._active, self._at_end, self._in_doubt, self._reread):
                group.discard(index)
            self._finished.append(index)

    # --- When something is wrong ---

    def _doubt_ends(self) -> None:
        """An end seen before the broker went away may be none any more: ask again once it is back."""
        for index in list(self._at_end):
            if self._connection.is_away(self._table.splits[index].key):
                self._at_end.discard(index)
                self._in_doubt.add(index)
        for index in list(self._in_doubt):
            if not self._connection.is_away(self._table.splits[index].key):
                self._in_doubt.discard(index)
                self._reread.add(index)

    def _read_again(self) -> None:
        """Fetch anew from the next offset; the end is told anew, too."""
        indices = sorted(self._reread & self._active)
        self._reread.clear()
        if indices:
            self._fetcher.unassign(self._positions(indices))
            self._fetcher.assign(self._positions(indices))

    def _positions(self, indices: Iterable[int]) -> list[TopicPartition]:
        splits = ((self._table.splits[i], int(self._next[i])) for i in indices)
        return [TopicPartition(split.topic, split.partition, offset) for split, offset in splits]

    def _note(self, notice: Notice) -> None:
        """An error event. What it means is raised by the next poll, so that records before it go on."""
        error, index = notice.error, notice.split
        code = error.code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED or (index >= 0 and index not in self._active):
            return  # the group is for monitors only; a finished split is of no interest
        if index >= 0:
            self._reread.add(index)
        place = self._table.ids[index] if index >= 0 else "a partition"
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._failure = self._why_out_of_range(index)
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = self._table.splits[index].topic if index >= 0 else place
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
        split = replace(self._table.splits[index], next_offset=int(self._next[index]))
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
