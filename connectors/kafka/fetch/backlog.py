"""DirectFetcher: a backlog is read from the brokers directly, everything else by librdkafka.

librdkafka makes a message of each record and hands it from thread to thread; that costs more than
decoding it. A partition that is far behind is taken from it and asked for by ourselves: one request, one
answer of megabytes, record batches that are turned into columns at once. That is all a direct fetch can do.
Whatever is not plain records (the end of the partition, an error, a leader that moved, a log that was cut, a
broker that is silent, a checksum that is wrong) gives the partition back to librdkafka at the next offset
and with the leader's epoch of what was read before it: librdkafka knows what to do, and finds out whether
records are lost. A direct fetch of this partition is tried again later; the others go on. Import only if
kernels are enabled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition

from onceflow.connectors.kafka.fetch.broker_lanes import LeaderFetch, wait_for
from onceflow.connectors.kafka.fetch.checked_assignment import NO_EPOCH
from onceflow.connectors.kafka.fetch.lane import Lane
from onceflow.connectors.kafka.fetch.lane_opener import FetchSettings, LaneOpener, Start
from onceflow.connectors.kafka.fetch.librdkafka_queue import BulkFetcher
from onceflow.connectors.kafka.fetched import Fetched, Notice, OnThrottle, Wanted
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.records.read_columns import RecordColumns
from onceflow.runtime.records import Int64s

_LOG = logging.getLogger(__name__)
_END = KafkaError(KafkaError._PARTITION_EOF)


class DirectFetcher:
    """See Fetcher. Every assigned partition is either `others`' or in a lane."""

    def __init__(
        self,
        others: BulkFetcher,
        consumer: Consumer,
        splits: SplitTable,
        wanted: Wanted,
        room: int,
        settings: FetchSettings,
        on_throttle: OnThrottle = lambda ms: None,
    ) -> None:
        """`room`: how many records a fetch has memory for."""
        self._others = others
        self._reading = settings.reading
        self._consumer = consumer
        self._splits = splits
        self._opener = LaneOpener(
            consumer, splits, settings, lambda: RecordColumns(wanted, room), on_throttle
        )
        self._leaders = self._opener.leaders
        self._lanes: dict[int, tuple[LeaderFetch, Lane]] = {}
        """The splits that are read directly, by number, with their broker."""
        self._next: Int64s = np.zeros(0, np.int64)
        """The offset behind the last record that librdkafka handed on, for each split."""
        self._epoch: Int64s = np.zeros(0, np.int64)
        """The leader's epoch of the record before that offset, for each split."""
        self._others_have: set[int] = set()
        self._full_fetches = 0
        self._not_before_s: dict[int, float] = {}
        """When a split may be read directly again after that went wrong, by its number."""
        self._is_turn_of_others = False
        self._nothing, _ = RecordColumns(wanted, 0).read([], 0)

    # --- Partitions ---

    def assign(self, positions: Sequence[TopicPartition]) -> None:
        missing = len(self._splits.splits) - len(self._next)
        self._next = np.concatenate([self._next, np.zeros(missing, np.int64)])
        self._epoch = np.concatenate([self._epoch, np.zeros(missing, np.int64)])
        numbers = [self._number(position) for position in positions]
        for number, position in zip(numbers, positions, strict=True):
            self._next[number] = position.offset
            self._epoch[number] = NO_EPOCH if position.leader_epoch is None else position.leader_epoch
        self._others_have.update(numbers)
        taken = self._take_over([number for number in numbers if self._has_far_to_go(number)], is_new=True)
        self._others.assign([p for n, p in zip(numbers, positions, strict=True) if n not in taken])

    def unassign(self, positions: Sequence[TopicPartition]) -> None:
        numbers = [self._number(position) for position in positions]
        of_others = [p for n, p in zip(numbers, positions, strict=True) if n in self._others_have]
        self._others_have.difference_update(numbers)
        for number in numbers:
            if number in self._lanes:
                leader, lane = self._lanes.pop(number)
                leader.remove(lane)
        self._others.unassign(of_others)

    def close(self) -> None:
        self._opener.close()
        self._lanes.clear()
        self._others.close()

    # --- Fetching ---

    def fetch(self, timeout_ms: int, records_max: int) -> Fetched:
        self._opener.close_idle()
        if not self._lanes:
            return self._fetch_from_others(timeout_ms, records_max)
        self._is_turn_of_others = not self._is_turn_of_others  # its callbacks want to run, too
        if self._is_turn_of_others:
            fetched = self._fetch_from_others(0, records_max)
            if len(fetched) or fetched.notices or fetched.lost:
                return fetched
        direct = self._fetch_directly(records_max)
        if direct is None and self._lanes and timeout_ms > 0:
            wait_for(list(self._leaders.values()), timeout_ms)
            direct = self._fetch_directly(records_max)
        return self._fetch_from_others(0, records_max) if direct is None else direct

    def _fetch_from_others(self, timeout_ms: int, records_max: int) -> Fetched:
        fetched = self._others.fetch(timeout_ms, records_max)
        if self._lanes and (len(fetched) or fetched.notices):
            fetched = fetched.without(self._lanes)  # librdkafka ends a reading a little later than it says
        if len(fetched):
            self._next[fetched.row_split] = fetched.offset + 1  # of each split the last one stays
            for number, epoch in fetched.epochs.items():
                self._epoch[number] = epoch
            self._full_fetches = self._full_fetches + 1 if self._others.is_behind else 0
            if self._full_fetches >= self._reading.full_fetches:
                self._full_fetches = 0
                self._take_over([n for n in self._others_have if self._is_far_behind(n)], is_new=False)
        return fetched

    def _fetch_directly(self, records_max: int) -> Fetched | None:
        """The next records of one broker; each has its turn."""
        for number in list(self._leaders):
            leader = self._leaders.pop(number)
            self._leaders[number] = leader
            try:
                fetched = leader.fetch(records_max)
            except (OSError, ProtocolError) as error:
                self._give_back(number, str(error))
                continue
            notices = self._finish_lanes(leader)
            if fetched is not None:
                return replace(fetched, notices=[n._replace(after=len(fetched)) for n in notices])
            if notices:
                return replace(self._nothing, notices=notices)
        return None

    def _finish_lanes(self, leader: LeaderFetch) -> list[Notice]:
        """Lanes that are at an end: librdkafka waits there for more; one that has been read up to its stop
        offset is said to end there, for what lies before it may be markers. And those in trouble."""
        notices: list[Notice] = []
        given_back: list[Lane] = []
        for lane in list(leader.lanes):
            if lane.next_offset >= lane.stop_offset:
                notices.append(Notice(_END, lane.split, lane.next_offset, 0))
                self._drop(leader, lane)
            elif lane.trouble:
                self._drop(leader, lane)
                self._pause(lane.split, lane.trouble)
                given_back.append(lane)
            elif lane.is_at_end and lane.next_offset >= lane.ask_offset:
                self._drop(leader, lane)
                given_back.append(lane)
        self._assign_to_others(given_back)
        return notices

    # --- Lanes ---

    def _number(self, position: TopicPartition) -> int:
        return self._splits.find(position.topic, position.partition)

    def _has_far_to_go(self, number: int) -> bool:
        """Whether a split is a backlog, as far as its stop offset tells before anything was read of it."""
        stop = self._splits.splits[number].stop_offset
        return stop is not None and stop - int(self._next[number]) >= self._reading.records_behind

    def _is_far_behind(self, number: int) -> bool:
        split = self._splits.splits[number]
        where = TopicPartition(split.topic, split.partition)
        _, high = self._consumer.get_watermark_offsets(where, cached=True) or (0, 0)
        end = high if split.stop_offset is None else min(high, split.stop_offset)
        return int(end) - int(self._next[number]) >= self._reading.records_behind

    def _take_over(self, numbers: Sequence[int], is_new: bool) -> set[int]:
        """Read these splits directly where that is possible; returns those that are. `is_new`: librdkafka has
        not begun with them."""
        now_s = time.monotonic()
        ready = [number for number in numbers if now_s >= self._not_before_s.get(number, 0.0)]
        if not ready:
            return set()
        opened = self._opener.open({n: Start(int(self._next[n]), int(self._epoch[n])) for n in ready})
        for number, reason in opened.refused.items():
            self._pause(number, reason)
        taken = {lane.split for _, lane in opened.lanes}
        if not is_new:
            self._others.unassign([self._position(number) for number in taken])
        self._others_have -= taken
        for leader, lane in opened.lanes:
            leader.add(lane)
            self._lanes[lane.split] = leader, lane
        if taken:
            _LOG.info("%d partitions are read from their brokers directly", len(taken))
        return taken

    def _drop(self, leader: LeaderFetch, lane: Lane) -> None:
        leader.remove(lane)
        del self._lanes[lane.split]
        self._next[lane.split] = lane.next_offset
        self._epoch[lane.split] = lane.epoch

    def _give_back(self, number: int, reason: str) -> None:
        """Give all lanes of a broker back to librdkafka, since the broker can't be spoken to."""
        leader = self._leaders.pop(number)
        lanes = list(leader.lanes)
        for lane in lanes:
            self._drop(leader, lane)
            self._pause(lane.split, reason)
        leader.close()
        self._assign_to_others(lanes)

    def _assign_to_others(self, lanes: Iterable[Lane]) -> None:
        numbers = [lane.split for lane in lanes]
        if numbers:
            self._others_have.update(numbers)
            self._others.assign([self._position(number) for number in numbers])

    def _position(self, number: int) -> TopicPartition:
        split = self._splits.splits[number]
        offset, epoch = int(self._next[number]), int(self._epoch[number])
        return TopicPartition(split.topic, split.partition, offset, leader_epoch=epoch)

    def _pause(self, number: int, reason: str) -> None:
        self._not_before_s[number] = time.monotonic() + self._reading.pause_s
        place, offset = self._splits.ids[number], int(self._next[number])
        _LOG.info("librdkafka goes on reading %s from offset %d: %s", place, offset, reason)
