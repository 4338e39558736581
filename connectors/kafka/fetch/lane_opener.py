"""LaneOpener: finds the brokers that lead partitions and opens a lane to them, without waiting for long."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaException

from onceflow.connectors.kafka.fetch.broker_lanes import FetchLimits, LeaderFetch
from onceflow.connectors.kafka.fetch.direct_reading import AS_USERS_DO, DirectReading
from onceflow.connectors.kafka.fetch.lane import Lane
from onceflow.connectors.kafka.fetched import OnThrottle
from onceflow.connectors.kafka.options import Isolation
from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess, access_of
from onceflow.connectors.kafka.protocol.polling_connection import BrokerConnection
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.records.read_columns import RecordColumns

_QUESTION_S = 1.0
_FETCH_BYTES_MAX = 50 << 20  # librdkafka's default
_NO_STOP = int(np.iinfo(np.int64).max)
_PARTITION_BYTES = ("max.partition.fetch.bytes", "fetch.message.max.bytes")
"""Two names of one setting: the later one counts."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """A direct fetch goes by these of a consumer's settings."""

    access: BrokerAccess
    isolation: Isolation
    limits: FetchLimits
    reading: DirectReading


def fetch_settings(settings: Mapping[str, Any], reading: DirectReading = AS_USERS_DO) -> FetchSettings | None:
    """`settings`: those the consumer was made with. None: only librdkafka can reach the brokers so, or reads
    otherwise: with a rack, from the nearest replica."""
    access = None if settings.get("client.rack") else access_of(settings)
    if access is None:
        return None
    is_uncommitted = settings.get("isolation.level") == "read_uncommitted"
    isolation: Isolation = "read_uncommitted" if is_uncommitted else "read_committed"
    return FetchSettings(access, isolation, fetch_limits(settings, reading), reading)


class Start(NamedTuple):
    """Where a lane begins."""

    offset: int
    epoch: int
    """The leader's epoch of the batch before it, or NO_EPOCH."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What became of the wish for some lanes."""

    lanes: Sequence[tuple[LeaderFetch, Lane]]
    refused: Mapping[int, str]
    """Why not, by split. A split that is in neither has no leader now."""


class LaneOpener:
    """Keeps the connections; used by one thread."""

    def __init__(
        self,
        consumer: Consumer,
        splits: SplitTable,
        settings: FetchSettings,
        open_reader: Callable[[], RecordColumns],
        on_throttle: OnThrottle,
    ) -> None:
        self.leaders: dict[int, LeaderFetch] = {}
        """The brokers that are asked, by number; each has its turn."""
        self._consumer = consumer
        self._splits = splits
        self._settings = settings
        self._connect = settings.reading.connection or BrokerConnection
        self._open_leader = settings.reading.leader or LeaderFetch
        self._open_reader = open_reader
        self._on_throttle = on_throttle

    def open(self, wanted: Mapping[int, Start]) -> Opened:
        """A lane for each of these splits that has a leader."""
        splits = self._splits.splits
        lanes: list[tuple[LeaderFetch, Lane]] = []
        refused: dict[int, str] = {}
        away: dict[int, str] = {}
        for topic in sorted({splits[number].topic for number in wanted}):
            numbers = [number for number in wanted if splits[number].topic == topic]
            try:
                metadata = self._consumer.list_topics(topic, timeout=_QUESTION_S)
            except KafkaException as error:
                refused.update(dict.fromkeys(numbers, str(error)))
                continue
            partitions = metadata.topics[topic].partitions
            for number in numbers:
                lane = self._lane(number, wanted[number])
                known = partitions.get(splits[number].partition)
                broker = metadata.brokers.get(known.leader) if known else None
                if lane is None or broker is None:
                    continue
                leader = self._leader(broker, away)
                if leader is None:
                    refused[number] = away[broker.id]
                else:
                    lanes.append((leader, lane))
        return Opened(lanes, refused)

    def close_idle(self) -> None:
        """Close connections without lanes. Called by the next fetch, not before: the details of the last one
        look at a leader's memory."""
        for number in [number for number, leader in self.leaders.items() if not leader.lanes]:
            self.leaders.pop(number).close()

    def close(self) -> None:
        for leader in self.leaders.values():
            leader.close()
        self.leaders.clear()

    def _lane(self, number: int, start: Start) -> Lane | None:
        split = self._splits.splits[number]
        topic_id = _topic_id(split.topic_id)
        if topic_id is None:
            return None
        stop = _NO_STOP if split.stop_offset is None else split.stop_offset
        return Lane(
            number,
            topic_id,
            split.partition,
            next_offset=start.offset,
            stop_offset=stop,
            ask_offset=start.offset,
            epoch=start.epoch,
            ask_epoch=start.epoch,
        )

    def _leader(self, broker: Any, away: dict[int, str]) -> LeaderFetch | None:
        """The connection to a broker. None: it can't be reached, as `away` says then; no partition of it
        waits for it again."""
        if broker.id in away:
            return None
        if broker.id not in self.leaders:
            try:
                connection = self._connect(broker.host, broker.port, self._settings.access)
            except (OSError, ProtocolError) as error:
                away[broker.id] = str(error)
                return None
            self.leaders[broker.id] = self._open_leader(
                connection,
                self._open_reader(),
                self._settings.access.client_id,
                self._settings.isolation,
                self._settings.limits,
                self._on_throttle,
            )
        return self.leaders[broker.id]


def _topic_id(text: str) -> bytes | None:
    """The 16 bytes of a topic id; None: it is not known. Kafka writes it in base64 for URLs, without the
    padding."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == 16 else None


def fetch_limits(settings: Mapping[str, Any], reading: DirectReading = AS_USERS_DO) -> FetchLimits:
    """The limits of what is asked for: not more than librdkafka may keep and ask for by these settings."""
    kept = int(settings.get("queued.max.messages.kbytes", 65_536)) << 10
    asked = int(settings.get("fetch.max.bytes", _FETCH_BYTES_MAX))
    shares = [int(value) for name, value in settings.items() if name in _PARTITION_BYTES]
    answer = min(reading.answer_bytes_max, kept, asked)
    return FetchLimits(answer, shares[-1] if shares else 1 << 20, reading.partition_bytes_min)
