"""KafkaReader: reads the partitions of one subtask, each exactly from its next offset.

One librdkafka consumer with assigned partitions and no group membership: onceflow decides who reads
what. Transaction markers take offsets too, so a partition's next offset after its last record may be
below its end; the end-of-partition event says how far it really is.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow.connectors.kafka.failures import denied
from onceflow.connectors.kafka.fetch.choose import open_fetcher
from onceflow.connectors.kafka.fetched import Fetched, Notice
from onceflow.connectors.kafka.lost_records import check_range, cut_log, cut_offset
from onceflow.connectors.kafka.reader_splits import SplitTable, last_rows
from onceflow.connectors.kafka.source.broker_health import ReaderConnection
from onceflow.connectors.kafka.source.pace import Pace
from onceflow.connectors.kafka.source.positions import ReaderPositions
from onceflow.connectors.kafka.source.reader_options import ReaderOptions
from onceflow.connectors.kafka.source.row_builder import RowBuilder
from onceflow.connectors.kafka.source.topic_watch import TopicWatch
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError, OnceflowError, Retryable

_LOG = logging.getLogger(__name__)
_QUESTION_TIMEOUT_S = 5.0
_WATCH_INTERVAL_MS = 1_000
_CUT = KafkaError(KafkaError._LOG_TRUNCATION).str()
"""A part of an error's text: librdkafka has found that a log is not the one that was read."""


class KafkaReader:
    """See SourceReader and PausableReader. Memory is bounded by librdkafka's `queued.max.messages.kbytes`."""

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
            self._consumer,
            settings,
            self._table,
            self._wanted,
            options.poll_records_max,
            direct=options.direct,
            on_throttle=self._connection.on_mute,
        )
        self._positions = ReaderPositions(self._table)
        self._active: set[int] = set()
        self._at_end: set[int] = set()
        self._in_doubt: set[int] = set()  # were at their end when their broker went away
        self._paused: set[int] = set()  # not assigned, and still active
        self._reread: set[int] = set()  # to be fetched again from their next offset
        self._out_of_range: set[int] = set()  # as a broker said: nothing more of them until that is explained
        self._failure: OnceflowError | None = None  # for the next poll: what came before it goes first
        self._finished: list[int] = []  # not told yet
        self._told_at_end: frozenset[str] = frozenset()
        self._pace = Pace(context.clock)

    # --- Splits ---

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        first = len(self._table.splits)
        added = [KafkaSplit.from_state(state) for state in splits]
        self._table.add(added)
        self._positions.add(added)
        self._finished += [first + i for i, split in enumerate(added) if split.is_finished]
        to_read = [first + i for i, split in enumerate(added) if not split.is_finished]
        self._watch.add({self._table.splits[i].topic: self._table.splits[i].topic_id for i in to_read})
        self._active.update(to_read)
        self._fetcher.assign(self._positions.starts(to_read))

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader. What librdkafka has fetched ahead of them is let go."""
        pausing = (self._table.numbers(split_ids) & self._active) - self._paused
        self._paused |= pausing
        for group in (self._at_end, self._in_doubt, self._reread):
            group -= pausing
        self._fetcher.unassign(self._positions.starts(sorted(pausing)))

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        resuming = self._table.numbers(split_ids) & self._paused
        self._paused -= resuming
        self._fetcher.assign(self._positions.starts(sorted(resuming)))

    def snapshot(self) -> Sequence[SplitState]:
        return [self._positions.split(index).state() for index in range(len(self._table.splits))]

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
        self._judge_ranges()
        self._read_again()
        fetched = self._fetcher.fetch(0 if self._finished else timeout_ms, records_max)
        if self._paused:
            fetched = fetched.without(self._paused)  # what was under way when they were let go
        if fetched.notices or len(fetched):
            self._pace.took(len(fetched), records_max)
        self._reread.update(fetched.lost)
        ends = self._ends(fetched) if fetched.notices else {}
        fetch = self._take(fetched) if len(fetched) else None
        for index, end in ends.items():
            self._at_end.add(index)
            # What lies between the last record and the end is markers and aborted records: read, too.
            self._positions.reach(index, end)
            self._finish_if_done(index)
        if self._in_doubt or not self._connection.is_sound:
            self._doubt_ends()
            self._connection.check(self._table.splits[i].key for i in self._active)
        for key in self._connection.stopped():
            self._revive(self._table.find(*key))
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
            if not notice.is_end:
                self._note(notice)
            elif notice.split in self._active:
                ends.pop(notice.split, None)
                if notice.split not in fetched.row_split[notice.after :]:
                    ends[notice.split] = notice.offset
        return ends

    def _take(self, fetched: Fetched) -> Fetch:
        """The rows of records; then, and only then, the splits' next offsets go on."""
        row_split, offset = fetched.row_split, fetched.offset
        positions = self._positions
        wanted = (offset < positions.stop[row_split]) & (offset >= positions.next[row_split])
        if not wanted.all():
            positions.refuse_filled(row_split, offset, fetched.epochs)
        try:
            fetch = self._build(fetched.filter(wanted))
        except OnceflowError:
            self._reread.update(row_split.tolist())  # nothing of it was handed on
            raise
        lasts = {index: int(offset[row]) for index, row in last_rows(row_split).items()}
        positions.go_on(lasts, fetched.epochs)
        for index in lasts:
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
            kind=rows.kinds,
        )

    def _finish_if_done(self, index: int) -> None:
        if index in self._active and self._positions.next[index] >= self._positions.stop[index]:
            self._fetcher.unassign(self._positions.starts([index]))
            for group in (self._active, self._at_end, self._in_doubt, self._reread, self._out_of_range):
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
        indices = sorted((self._reread & self._active) - self._out_of_range - self._paused)
        self._reread.clear()
        if indices:
            self._fetcher.unassign(self._positions.starts(indices))
            self._fetcher.assign(self._positions.starts(indices))

    def _revive(self, index: int) -> None:
        """A partition that nobody reads, and of which nobody has said why: if there is a reason, it is told
        anew."""
        if index in self._active - self._paused:
            place, offset = self._table.ids[index], self._positions.next[index]
            said = f"{place} was not read any more: it is assigned anew, from offset {offset}"
            _LOG.warning("%s", said)
            self._context.on_wait(said)
            self._reread.add(index)

    def _note(self, notice: Notice) -> None:
        """An error event. What it means is raised by the next poll, so that records before it go on."""
        error, index = notice.error, notice.split
        code = error.code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED or (index >= 0 and index not in self._active):
            return  # the group is for monitors only; a finished split is of no interest
        if index >= 0:
            self._reread.add(index)
        place = self._table.ids[index] if index >= 0 else "a partition"
        is_out_of_range = code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
        if is_out_of_range and _CUT in error.str():
            self._failure = self._lost_end(index, error.str())
        elif is_out_of_range and index >= 0:
            self._out_of_range.add(index)
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
            at = f" at offset {self._positions.next[index]}" if index >= 0 else ""
            self._failure = Retryable(f"{place} can't be read{at}: {error.name()}: {reason}")

    def _lost_end(self, index: int, said: str) -> OnceflowError:
        """The log is not the one that was read, as librdkafka says: maybe the topic isn't either."""
        split = self._positions.split(index)
        try:
            self._watch.confirm(split.topic, _QUESTION_TIMEOUT_S)
        except DataLossError as loss:
            return loss
        return cut_log(split.split_id, split.next_offset, cut_offset(said))

    def _judge_ranges(self) -> None:
        """Why a broker said that an offset is not in its log. Until that is known, nothing more of the split
        is read: the log may have grown over the offset since, and then other records come."""
        for index in sorted(self._out_of_range & self._active):
            split = self._positions.split(index)
            where = TopicPartition(split.topic, split.partition)
            try:
                low, high = self._consumer.get_watermark_offsets(where, _QUESTION_TIMEOUT_S, cached=False)
            except KafkaException as error:
                reason = self._options.kafka.redact(error.args[0].str())
                raise Retryable(
                    f"{split.split_id} can't be read at offset {split.next_offset}, which is out of range, "
                    f"and the broker does not say why: {reason}"
                ) from error
            self._out_of_range.discard(index)
            self._watch.confirm(split.topic, _QUESTION_TIMEOUT_S)
            check_range(split.split_id, split.next_offset, low, high)
            if not self._positions.has_epoch(index):  # nothing tells what is there now
                raise cut_log(split.split_id, split.next_offset, None)
            self._positions.forget_epoch_before(index, low)
            self._reread.add(index)  # librdkafka compares the leader's epoch then
