"""What the user asked of spark.readStream and spark.read, checked at the door."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onceflow.connectors.kafka.metadata import PartitionKey
from onceflow.connectors.kafka.options import BROKER_TIMEOUT, FIRST_ANSWER_MS, Isolation, KafkaOptions
from onceflow.connectors.kafka.split import Subscription
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming import corrupt_records
from onceflow.structured_streaming.options import parse_options

Door = Literal["readStream", "read"]

LATEST = -1
EARLIEST = -2
"""The numbers for the ends of a partition, as Spark writes them in startingOffsets."""

_ALIASES = {
    "topics": "subscribe",
    "topic_pattern": "subscribePattern",
    "starting_offsets": "startingOffsets",
    "starting_timestamp": "startingTimestamp",
    "starting_offsets_by_timestamp": "startingOffsetsByTimestamp",
    "starting_offsets_by_timestamp_strategy": "startingOffsetsByTimestampStrategy",
    "ending_offsets": "endingOffsets",
    "ending_timestamp": "endingTimestamp",
    "ending_offsets_by_timestamp": "endingOffsetsByTimestamp",
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "min_partitions": "minPartitions",
    "max_records_per_partition": "maxRecordsPerPartition",
    "fail_on_data_loss": "failOnDataLoss",
    "include_headers": "includeHeaders",
}
"""The same in the manner of onceflow's own names."""

_EITHER = (
    *dict.fromkeys(name for name in _ALIASES.values() if not name.startswith(("ending", "maxOffsets"))),
    "assign",
    "isolation",
    "broker_timeout",
    *corrupt_records.OPTIONS,
    "key_column",
    "topic_column",
    "partition_column",
    "offset_column",
    "timestamp_column",
    "headers_column",
)
_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM = ("maxOffsetsPerTrigger",)
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_ISOLATION = "kafka.isolation.level"


@dataclass(frozen=True, slots=True)
class AtPlaces:
    """Where reading begins, or ends: an offset for each partition; LATEST and EARLIEST stand for the ends."""

    offsets: Mapping[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """From the first record at or after a time in ms: for all partitions, or for each by itself."""

    time_ms: int | Mapping[PartitionKey, int]
    or_latest: bool
    """What a partition without such a record means: its end, or an error."""

    def of(self, key: PartitionKey) -> int | None:
        return self.time_ms if isinstance(self.time_ms, int) else self.time_ms.get(key)


Position = Literal["earliest", "latest"] | AtPlaces | AtTimes


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All there is to know of a source but its columns. Pickled into the tasks."""

    kafka: KafkaOptions
    subscription: Subscription
    partitions: frozenset[PartitionKey] | None
    """`assign`: only these; None: all of the topics."""
    start: Position
    end: Position
    """Where a batch query ends; a streaming query has no end."""
    isolation: Isolation
    offsets_max: int | None
    partitions_min: int | None
    records_max: int | None
    fail_on_data_loss: bool
    broker_timeout_ms: int
    given: Mapping[str, str]
    """All options of ours, for what the columns are to be."""

    @property
    def first_answer_ms(self) -> int:
        """How long to wait for brokers that have not answered yet: most are away because their address is
        wrong."""
        given = "broker_timeout" in self.given
        return self.broker_timeout_ms if given else min(self.broker_timeout_ms, FIRST_ANSWER_MS)

    @property
    def includes_headers(self) -> bool:
        return _truth(self.given, "includeHeaders", False)


def source_options(options: Mapping[str, str], door: Door) -> SourceOptions:
    """Raises OptionError naming the option that is unknown, malformed, or contradicts another."""
    known = (*_EITHER, *(_STREAM if door == "readStream" else _ENDING))
    settings = dict(options)
    for name in [name for name in settings if name.lower() == _ISOLATION]:
        settings["isolation"] = settings.pop(name)
    aliases = tuple(ours for ours, spark in _ALIASES.items() if spark in known)
    parsed = parse_options(settings, (*known, *aliases), f"spark.{door}")
    given = dict(parsed.ours)
    for ours in aliases:
        if ours in given:
            value = given.pop(ours)
            if given.setdefault(_ALIASES[ours], value) != value:
                raise OptionError(f"options {ours!r} and {_ALIASES[ours]!r} say different things: give one")
    subscription, partitions = _subscription(given)
    isolation = given.get("isolation", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise OptionError(f'isolation={isolation!r}: write "read_committed" or "read_uncommitted"')
    return SourceOptions(
        kafka=parsed.kafka,
        subscription=subscription,
        partitions=partitions,
        start=_position(given, "starting", "latest" if door == "readStream" else "earliest"),
        end=_position(given, "ending", "latest"),
        isolation=isolation,  # type: ignore[arg-type]  # one of the two, as has just been checked
        offsets_max=_number(given, "maxOffsetsPerTrigger"),
        partitions_min=_number(given, "minPartitions"),
        records_max=_number(given, "maxRecordsPerPartition"),
        fail_on_data_loss=_truth(given, "failOnDataLoss", True),
        broker_timeout_ms=duration_ms(given.get("broker_timeout", BROKER_TIMEOUT), "broker_timeout"),
        given=given,
    )


# --- Which partitions -----------------------------------------------------------------------------


def _subscription(given: Mapping[str, str]) -> tuple[Subscription, frozenset[PartitionKey] | None]:
    named = [name for name in _SUBSCRIPTIONS if name in given]
    if len(named) != 1:
        said = f"got {' and '.join(named)}" if named else "none is there"
        raise OptionError(
            'give exactly one of subscribe="events,more", subscribePattern="events-.*" and '
            f'assign={{"events":[0,1]}} to onceflow-kafka: {said}'
        )
    value = given[named[0]]
    if named[0] == "assign":
        keys = frozenset(_assigned(value))
        return Subscription(tuple(sorted({topic for topic, _ in keys}))), keys
    if named[0] == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(f"subscribePattern={value!r} is not a regular expression: {error}") from error
        return Subscription(pattern=value), None
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise OptionError('subscribe names no topic: write "events" or "events,more"')
    return Subscription(topics), None


def _assigned(text: str) -> list[PartitionKey]:
    found = _json_object(text, "assign", '{"events":[0,1]}')
    keys = [(topic, number) for topic, numbers in found.items() for number in _list(numbers)]
    if not keys or not all(type(number) is int and number >= 0 for _, number in keys):
        raise OptionError(f'assign={text!r} names no partitions: write {{"events":[0,1]}}')
    return keys


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


# --- Where from, where to -------------------------------------------------------------------------


def _position(given: Mapping[str, str], side: str, otherwise: Literal["earliest", "latest"]) -> Position:
    """`side` is "starting" or "ending"."""
    names = [f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"]
    named = [name for name in names if name in given]
    if len(named) > 1:
        raise OptionError(f"{named[0]} and {named[1]} say different things: give one of them")
    strategy = given.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f'startingOffsetsByTimestampStrategy={strategy!r}: write "error" or "latest"')
    if not named:
        return otherwise
    name, value = named[0], given[named[0]]
    or_latest = side == "ending" or strategy == "latest"
    if name.endswith("Timestamp") and name != f"{side}OffsetsByTimestamp":
        return AtTimes(_whole(value, name), or_latest)
    example = '{"events":{"0":1700000000000}}' if name.endswith("Timestamp") else '{"events":{"0":17,"1":-1}}'
    if name.endswith("Offsets") and value.strip().lower() in ("earliest", "latest"):
        word: Literal["earliest", "latest"] = "earliest" if value.strip().lower() == "earliest" else "latest"
        if side == "ending" and word == "earliest":
            raise OptionError('endingOffsets="earliest" would end before the first record: write "latest"')
        return word
    lowest = 0 if name.endswith("Timestamp") else LATEST if side == "ending" else EARLIEST
    places = _by_partition(value, name, example, lowest)
    return AtTimes(places, or_latest) if name.endswith("Timestamp") else AtPlaces(places)


def _by_partition(text: str, name: str, example: str, lowest: int) -> dict[PartitionKey, int]:
    places: dict[PartitionKey, int] = {}
    for topic, partitions in _json_object(text, name, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{name} has no offsets for topic {topic!r}: write {example}")
        for partition, place in partitions.items():
            if not partition.isdecimal() or type(place) is not int or place < lowest:
                raise OptionError(
                    f"{name} can't have {partition!r}: {place!r} for {topic!r}: write {example}"
                )
            places[topic, int(partition)] = place
    return places


def _json_object(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        words = ', or "earliest" or "latest"' if name.endswith("Offsets") else ""
        raise OptionError(f"{name}={text!r} is not a JSON object: write {example}{words}")
    return found


# --- Values ---------------------------------------------------------------------------------------


def _number(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    number = _whole(given[name], name)
    if number < 1:
        raise OptionError(f"{name}={given[name]!r} must be at least 1")
    return number


def _whole(text: str, name: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"{name}={text!r} is not a whole number")
    return int(text)


def _truth(given: Mapping[str, str], name: str, otherwise: bool) -> bool:
    value = given.get(name, str(otherwise)).strip().lower()
    if value not in ("true", "false"):
        raise OptionError(f'{name}={given[name]!r}: write "true" or "false"')
    return value == "true"
