"""What a task does: reads ranges of topic partitions, in Arrow batches, with a consumer that outlives it.

Spark keeps its Python workers, and a micro-batch is short: a new connection for each would take longer
than the reading. So a worker keeps the readers of the query it works for, without any partition assigned.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from onceflow.connectors.kafka.fetch.direct_reading import AS_USERS_DO
from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.options import KafkaOptions, Setting
from onceflow.connectors.kafka.protocol.eligibility import DIRECT_FETCH_VARIABLE, may_be_direct
from onceflow.connectors.kafka.source.reader import KafkaReader
from onceflow.connectors.kafka.source.reader_options import ReaderOptions
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext
from onceflow.runtime.errors import DataLossError, Retryable
from onceflow.structured_streaming.read_plan import ReadPlan
from onceflow.structured_streaming.source_offsets import OffsetRange
from onceflow.structured_streaming.source_rows import by_split, row_builder, rows_of

_LOG = logging.getLogger(__name__)
_POLL_MS = 200
_POLL_RECORDS_MAX = 10_000
_METADATA_TIMEOUT_MS = 5_000
_KEPT_MAX = 4
_KEPT_S = 60.0
_SPLITS_MAX = 800
"""A reader remembers every split it was ever given."""

_FETCH_WAIT: Mapping[str, Setting] = {
    # How long an end goes unnoticed: every range ends, and often with the marker of a transaction.
    "fetch.wait.max.ms": 10,
}
_SMALL_OFFSETS = 50_000
_SMALL: Mapping[str, Setting] = {
    # What is fetched beyond a range is thrown away.
    **_FETCH_WAIT,
    "max.partition.fetch.bytes": 512 << 10,
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16 << 10,
}
_LARGE: Mapping[str, Setting] = {**_FETCH_WAIT, "max.partition.fetch.bytes": 4 << 20}


@dataclass(slots=True)
class _Kept:
    reader: KafkaReader
    splits: int
    """How many it was ever given."""
    used_at_s: float


class KeptReaders:
    """The readers of this process that wait for their next task. One thread uses it, as a worker does one
    task at a time; a reader that is in use is not in here."""

    def __init__(self) -> None:
        self.opened = 0
        """How many were opened so far."""
        self._kept: dict[tuple[str, bool], _Kept] = {}

    def take(self, plan: ReadPlan, is_small: bool) -> _Kept:
        self._drop_old()
        found = self._kept.pop((plan.token, is_small), None)
        if found is None:
            self.opened += 1
            found = _Kept(_open_reader(plan, is_small), 0, 0.0)
        return found

    def give_back(self, plan: ReadPlan, is_small: bool, kept: _Kept, splits: int) -> None:
        """Keep a reader for the next task; only one that has read its ranges, so many, to the end."""
        kept.splits += splits
        kept.used_at_s = time.monotonic()
        place = (plan.token, is_small)
        if kept.splits >= _SPLITS_MAX or place in self._kept:
            kept.reader.close()
            return
        self._kept[place] = kept
        while len(self._kept) > _KEPT_MAX:
            oldest = min(self._kept, key=lambda key: self._kept[key].used_at_s)
            self._kept.pop(oldest).reader.close()

    def close(self) -> None:
        """Close all readers that wait for a task."""
        while self._kept:
            self._kept.popitem()[1].reader.close()

    def _drop_old(self) -> None:
        now = time.monotonic()
        for place in [p for p, kept in self._kept.items() if now - kept.used_at_s > _KEPT_S]:
            self._kept.pop(place).reader.close()


READERS = KeptReaders()


def read_ranges(
    plan: ReadPlan, wanted: Sequence[OffsetRange], readers: KeptReaders = READERS
) -> Iterator[pa.RecordBatch]:
    """Every record of the ranges, once, those of a range in order; each is of another topic partition. Raises
    DataLossError and BadRecordError with a sentence for the user; failOnDataLoss=false goes on behind what is
    gone instead."""
    todo = [[each for each in wanted if each.size > 0]]
    while todo:
        together = todo.pop()
        if not together:
            continue
        try:
            yield from _read_together(plan, together, readers)
        except _GapError as gap:
            if len(together) > 1:  # of one of them: each by itself finds out
                todo += [[each] for each in reversed(gap.rest)]
                continue
            _LOG.warning("%s; going on, as failOnDataLoss is false", gap)
            behind = _behind_the_gap(plan, gap.rest[0])
            todo.append([] if behind is None else [behind])


class _GapError(Exception):
    """Records are gone, which the user said may be. All before the rest was handed on."""

    def __init__(self, reason: str, rest: list[OffsetRange]) -> None:
        super().__init__(reason)
        self.rest = rest


def _read_together(
    plan: ReadPlan, wanted: Sequence[OffsetRange], readers: KeptReaders
) -> Iterator[pa.RecordBatch]:
    is_small = sum(each.size for each in wanted) < _SMALL_OFFSETS
    kept = readers.take(plan, is_small)
    is_done = False
    rest = dict(enumerate(wanted))
    try:
        for number, fetch in _fetches(kept.reader, wanted, plan.options.broker_timeout_ms):
            if len(fetch.row_split) or fetch.dead_letters is not None:
                yield rows_of(plan.columns, fetch, wanted[number])
            if fetch.offset is not None and len(fetch.offset):
                behind = int(fetch.offset[-1]) + 1
                rest[number] = replace(wanted[number], next_offset=behind, leader_epoch=None)
        is_done = True
    except DataLossError as loss:
        if plan.options.fail_on_data_loss:
            raise DataLossError(f"{loss}; to go on with what is there, set failOnDataLoss to false") from loss
        raise _GapError(str(loss), list(rest.values())) from loss
    finally:
        if is_done:
            readers.give_back(plan, is_small, kept, len(wanted))
        else:
            kept.reader.close()


def _fetches(
    reader: KafkaReader, wanted: Sequence[OffsetRange], patience_ms: int
) -> Iterator[tuple[int, Fetch]]:
    """The fetches of each range, by its number, until the reader says that all are finished. After a passing
    fault it polls again."""
    splits = [_split(each) for each in wanted]
    numbers = {split.split_id: number for number, split in enumerate(splits)}
    unfinished = set(numbers)
    reader.add_splits([split.state() for split in splits])
    moved_at_s = time.monotonic()
    while unfinished:
        try:
            fetch = reader.poll(_POLL_MS, _POLL_RECORDS_MAX)
        except Retryable as fault:
            if (time.monotonic() - moved_at_s) * 1000 >= patience_ms:
                raise
            _LOG.warning("%s; trying again", fault)
            continue
        if fetch is None:
            continue
        moved_at_s = time.monotonic()
        for split_id, part in by_split(fetch, splits):
            yield numbers[split_id], part
        unfinished -= fetch.finished


def _split(wanted: OffsetRange) -> KafkaSplit:
    return KafkaSplit(
        wanted.topic,
        wanted.topic_id,
        wanted.partition,
        wanted.next_offset,
        wanted.stop_offset,
        wanted.leader_epoch,
        None if wanted.leader_epoch is None else wanted.next_offset,
    )


def _behind_the_gap(plan: ReadPlan, rest: OffsetRange) -> OffsetRange | None:
    """The part of a range that is still there; None: nothing. Called when its beginning is gone."""
    cluster = ClusterMetadata(plan.options.kafka, SystemClock(), _METADATA_TIMEOUT_MS)
    try:
        topic = cluster.describe([rest.topic]).get(rest.topic)
        if topic is None or (rest.topic_id and topic.topic_id != rest.topic_id):
            return None
        key = (rest.topic, rest.partition)
        low = cluster.offsets([key], "earliest", "read_uncommitted")[key]
        high = cluster.offsets([key], "latest", "read_uncommitted")[key]
    finally:
        cluster.close()
    behind = max(rest.next_offset, low)
    stop = min(rest.stop_offset, high)
    there = replace(rest, next_offset=behind, stop_offset=stop, leader_epoch=None)
    return there if behind < stop else None


_NUMBERS = itertools.count()


def _open_reader(plan: ReadPlan, is_small: bool) -> KafkaReader:
    options = plan.options
    given = options.kafka
    settings = {**(_SMALL if is_small else _LARGE), **given.librdkafka}
    kafka = KafkaOptions(given.bootstrap_servers, settings)
    context = ReaderContext(
        job="structured-streaming",
        uid="source",
        subtask=next(_NUMBERS),
        attempt=0,
        clock=SystemClock(),
        with_origin=True,
        with_timestamp="timestamp" in plan.columns.kafka.values(),
        on_wait=lambda reason: _LOG.warning("%s", reason) if reason else None,
    )
    return KafkaReader(
        ReaderOptions(
            kafka,
            options.isolation,
            None,
            options.broker_timeout_ms,
            direct=AS_USERS_DO if may_be_direct(given.librdkafka, DIRECT_FETCH_VARIABLE) else None,
        ),
        row_builder(plan.columns),
        context,
    )
