"""DirectFetcher: a backlog is read from the brokers directly, everything else by librdkafka.

librdkafka makes a message of each record and hands it from thread to thread; that costs more than
decoding it. A partition that is far behind is taken from it and asked for by ourselves: one request, one
answer of megabytes, record batches that are turned into columns at once. That is all a direct fetch can do.
Whatever is not plain records (the end of the partition, an error, a leader that moved, a broker that is
silent, a checksum that is wrong) gives the partition back to librdkafka at the next offset, which knows
what to do; a direct fetch is tried again later.
"""

from __future__ import annotations

import base64
import binascii
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow.connectors.kafka.direct import PAUSE_S
from onceflow.connectors.kafka.fetch import Fetched, Notice, Wanted
from onceflow.connectors.kafka.fetch_bulk import BulkFetcher
from onceflow.connectors.kafka.fetch_connection import BrokerConnection
from onceflow.connectors.kafka.fetch_leader import FetchLimits, Lane, LeaderFetch, wait_for
from onceflow.connectors.kafka.metadata import Isolation
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.record_sections import open_section_reader
from onceflow.connectors.kafka.wire import ProtocolError
from onceflow.runtime.records import Int64s

_LOG = logging.getLogger(__name__)
RECORDS_BEHIND = 50_000
"""A partition that has so many records more is worth a request of its own."""
FULL_FETCHES = 3
"""So many in a row, each as large as it may be: librdkafka has more than we take."""
_QUESTION_S = 1.0
_ANSWER_BYTES_MAX = 8 << 20
_NO_STOP = int(np.iinfo(np.int64).max)
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
        settings: Mapping[str, Any],
        kernels: bool | None = None,
    ) -> None:
        """`room`: how many records a fetch has memory for. `settings`: those the consumer was made with.
        `kernels`: whether to use them; None: if they are
        enabled."""
        self._others = others
        self._consumer = consumer
        self._splits = splits
        self._room = room
        self._client_id = str(settings.get("client.id", "rdkafka"))
        self._isolation: Isolation = (
            "read_uncommitted" if settings.get("isolation.level") == "read_uncommitted" else "read_committed"
        )
        self._limits = _limits(settings)
        self._open_reader = partial(open_section_reader, wanted, kernels=kernels)
        self._leaders: dict[int, LeaderFetch] = {}
        self._lanes: dict[int, tuple[LeaderFetch, Lane]] = {}
        """By split."""
        self._next: Int64s = np.zeros(0, np.int64)
        """By split: the offset behind the last record that others handed on."""
        self._others_have: set[int] = set()
        self._full_fetches = 0
        self._not_before_s = 0.0
        self._is_turn_of_others = False
        self._nothing, _ = self._open_reader(0).read([], 0)

    # --- Partitions ---

    def assign(self, positions: Sequence[TopicPartition]) -> None:
        missing = len(self._splits.splits) - len(self._next)
        self._next = np.concatenate([self._next, np.zeros(missing, np.int64)])
        numbers = [self._number(position) for position in positions]
        for number, position in zip(numbers, positions, strict=True):
            self._next[number] = position.offset
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
        for leader in self._leaders.values():
            leader.close()
        self._leaders.clear()
        self._lanes.clear()
        self._others.close()

    # --- Fetching ---

    def fetch(self, timeout_ms: int, records_max: int) -> Fetched:
        self._close_idle_leaders()
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
            fetched = self._without_lanes(fetched)
        if len(fetched):
            self._next[fetched.row_split] = fetched.offset + 1  # of each split the last one stays
            self._full_fetches = self._full_fetches + 1 if self._others.is_behind else 0
            if self._full_fetches >= FULL_FETCHES:
                self._full_fetches = 0
                self._take_over([n for n in self._others_have if self._is_far_behind(n)], is_new=False)
        return fetched

    def _without_lanes(self, fetched: Fetched) -> Fetched:
        """librdkafka ends a reading a little later than it says."""
        notices = [notice for notice in fetched.notices if notice.split not in self._lanes]
        kept = ~np.isin(fetched.row_split, list(self._lanes))
        if kept.all() and len(notices) == len(fetched.notices):
            return fetched
        before = np.append(0, np.cumsum(kept))
        moved = [notice._replace(after=int(before[notice.after])) for notice in notices]
        return replace(fetched.filter(kept), notices=moved)

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
        offset is said to end there, for what lies before it may be markers."""
        notices: list[Notice] = []
        given_back: list[Lane] = []
        for lane in list(leader.lanes):
            if lane.next_offset >= lane.stop_offset:
                notices.append(Notice(_END, lane.split, lane.next_offset, 0))
                self._drop(leader, lane)
            elif lane.is_at_end and lane.next_offset >= lane.ask_offset:
                self._drop(leader, lane)
                given_back.append(lane)
        self._assign_to_others(given_back)
        return notices

    # --- Lanes ---

    def _number(self, position: TopicPartition) -> int:
        return self._splits.find(position.topic, position.partition)

    def _has_far_to_go(self, number: int) -> bool:
        """As far as is known before anything was read of it."""
        stop = self._splits.splits[number].stop_offset
        return stop is not None and stop - int(self._next[number]) >= RECORDS_BEHIND

    def _is_far_behind(self, number: int) -> bool:
        split = self._splits.splits[number]
        where = TopicPartition(split.topic, split.partition)
        _, high = self._consumer.get_watermark_offsets(where, cached=True) or (0, 0)
        end = high if split.stop_offset is None else min(high, split.stop_offset)
        return int(end) - int(self._next[number]) >= RECORDS_BEHIND

    def _take_over(self, numbers: Sequence[int], is_new: bool) -> set[int]:
        """Those of these splits that are read directly now. `is_new`: others have not begun with them."""
        if not numbers or time.monotonic() < self._not_before_s:
            return set()
        try:
            lanes = self._open_lanes(numbers)
        except (KafkaException, OSError, ProtocolError) as error:
            self._pause(str(error))
            return set()
        taken = {lane.split for _, lane in lanes}
        if not is_new:
            self._others.unassign([self._position(number) for number in taken])
        self._others_have -= taken
        for leader, lane in lanes:
            leader.add(lane)
            self._lanes[lane.split] = leader, lane
        if taken:
            _LOG.info("%d partitions are read from their brokers directly", len(taken))
        return taken

    def _open_lanes(self, numbers: Sequence[int]) -> list[tuple[LeaderFetch, Lane]]:
        splits = self._splits.splits
        lanes: list[tuple[LeaderFetch, Lane]] = []
        for topic in sorted({splits[number].topic for number in numbers}):
            metadata = self._consumer.list_topics(topic, timeout=_QUESTION_S)
            partitions = metadata.topics[topic].partitions
            for number in numbers:
                split = splits[number]
                topic_id = _topic_id(split.topic_id)
                if split.topic != topic or topic_id is None or split.partition not in partitions:
                    continue
                leader = metadata.brokers.get(partitions[split.partition].leader)
                if leader is not None:
                    offset = int(self._next[number])
                    stop = _NO_STOP if split.stop_offset is None else split.stop_offset
                    lane = Lane(number, topic_id, split.partition, offset, stop, offset)
                    lanes.append((self._leader(leader.id, leader.host, leader.port), lane))
        return lanes

    def _leader(self, number: int, host: str, port: int) -> LeaderFetch:
        if number not in self._leaders:
            self._leaders[number] = LeaderFetch(
                BrokerConnection(host, port, self._client_id),
                self._open_reader(self._room),
                self._client_id,
                self._isolation,
                self._limits,
            )
        return self._leaders[number]

    def _close_idle_leaders(self) -> None:
        """Not before the next fetch: the details of the last one look at a leader's memory."""
        for number in [number for number, leader in self._leaders.items() if not leader.lanes]:
            self._leaders.pop(number).close()

    def _drop(self, leader: LeaderFetch, lane: Lane) -> None:
        leader.remove(lane)
        del self._lanes[lane.split]
        self._next[lane.split] = lane.next_offset

    def _give_back(self, number: int, reason: str) -> None:
        """All that a broker was asked for, since something went wrong there."""
        leader = self._leaders.pop(number)
        lanes = list(leader.lanes)
        for lane in lanes:
            self._drop(leader, lane)
        leader.close()
        self._assign_to_others(lanes)
        self._pause(reason)

    def _assign_to_others(self, lanes: Iterable[Lane]) -> None:
        numbers = [lane.split for lane in lanes]
        if numbers:
            self._others_have.update(numbers)
            self._others.assign([self._position(number) for number in numbers])

    def _position(self, number: int) -> TopicPartition:
        split = self._splits.splits[number]
        return TopicPartition(split.topic, split.partition, int(self._next[number]))

    def _pause(self, reason: str) -> None:
        self._not_before_s = time.monotonic() + PAUSE_S
        _LOG.info("librdkafka goes on reading: %s", reason)


def _topic_id(text: str) -> bytes | None:
    """Its 16 bytes; None: it is not known. Kafka writes it in base64 for URLs, without the padding."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == 16 else None


def _limits(settings: Mapping[str, Any]) -> FetchLimits:
    """Not more than librdkafka may keep and ask for."""
    kept = int(settings.get("queued.max.messages.kbytes", 65_536)) << 10
    partition = int(settings.get("max.partition.fetch.bytes", 1 << 20))
    return FetchLimits(min(_ANSWER_BYTES_MAX, kept), partition)
