"""KafkaSource: topics as a stream of typed rows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance, TolerantSource
from onceflow.connectors.formats import Format
from onceflow.connectors.formats.format import has_kinds, lacks_before
from onceflow.connectors.kafka.fetch.direct_reading import AS_USERS_DO, DirectReading
from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.options import (
    BROKER_TIMEOUT,
    FIRST_ANSWER_MS,
    Isolation,
    KafkaOptions,
    Setting,
)
from onceflow.connectors.kafka.protocol.eligibility import DIRECT_FETCH_VARIABLE, may_be_direct
from onceflow.connectors.kafka.setting_names import check_settings
from onceflow.connectors.kafka.source.dead_letters import DeadLetterSink
from onceflow.connectors.kafka.source.reader import KafkaReader
from onceflow.connectors.kafka.source.reader_options import ReaderOptions
from onceflow.connectors.kafka.source.row_builder import METADATA, Metadata, RowBuilder
from onceflow.connectors.kafka.source.start import parse_start, parse_until
from onceflow.connectors.kafka.split import KafkaSplitEnumerator, Subscription
from onceflow.runtime.arguments import check_formats
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import ReaderContext, Sink, SourceReader, SplitEnumerator
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest

_CONNECT_NAMES = {"errors.tolerance", "errors.deadletterqueue.topic.name"}


@explained
@dataclass(frozen=True, kw_only=True)
class KafkaSource(TolerantSource):
    """Reads topics; each partition is a split, and its next offset the split's whole state.

    Columns: those of `key`, then of `value`, then Kafka's own on request. Raises OptionError at once
    for a wrong option; connects only when the job runs.
    """

    bootstrap_servers: str
    topics: Sequence[str] = ()
    topic_pattern: str | None = None
    """A regular expression for the whole name; new topics that match are found while the job runs."""
    value: Format
    key: Format | None = None
    """The key's format; without one, keys are ignored."""
    key_prefix: str = ""
    """Put before the names of the key's columns."""
    start: str | dt.datetime | Mapping[str, int] = "earliest"
    """Where the very first start begins; later the checkpoint decides: "earliest", "latest", "group" (the
    offsets committed by group_id, otherwise the beginning), "timestamp:2026-01-31T00:00:00Z" or
    "timestamp:<ms>" or a datetime (the first record of that time or later), or an offset for each
    partition: {"events-0": 17, "events-1": 5}."""
    until: str | dt.datetime | Mapping[str, int] | None = None
    """Where reading ends, fixed when the job first starts: "latest": before anything that is not yet there;
    a time as in start=: before the first record of that time or later; an offset for each partition: before
    that one. None: never."""
    group_id: str | None = None
    """Offsets are committed to this consumer group after each checkpoint, for lag monitors."""
    isolation: Isolation = "read_committed"
    headers: str | None = None
    """The name of a column with the record's headers: list<struct<key: string, value: binary>>."""
    timestamp: str | None = None
    """The name of a column with the record's own timestamp: timestamp[ms, UTC]."""
    topic_column: str | None = None
    partition_column: str | None = None
    offset_column: str | None = None
    errors_tolerance: Tolerance = "none"
    """"none": a record that can't be decoded ends the job. "all": it goes to dead_letters, or to
    dead_letter_topic."""
    dead_letter_topic: str | None = None
    dead_letters: Sink | None = None
    """Any sink for records that can't be decoded; errors_tolerance is then "all"."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """The same two under Kafka Connect's names: errors.tolerance, errors.deadletterqueue.topic.name."""
    discovery_interval: str | int = "30 s"
    """How often to look for new partitions and topics."""
    broker_timeout: str | int | None = None
    """How long to wait for unavailable brokers before the attempt fails; None: 2 min, but 15 s if the job has
    never run, since brokers that have never answered mostly have a wrong address."""
    librdkafka: Mapping[str, Setting] = field(default_factory=dict, repr=False)
    """Settings under librdkafka's names; those that the guarantee relies on are refused by name."""
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        self._set("topics", (self.topics,) if isinstance(self.topics, str) else tuple(self.topics))
        self._take_connect_names()
        self.settle_tolerance(self.dead_letter_topic)
        _check_topics(self)
        _check_choices(self)
        check_formats("decoder", value=self.value, key=self.key)
        if has_kinds(self.key):
            raise OptionError("key= says what a record is of, and changes nothing: give Debezium as value=")
        parse_start(self.start, self.group_id)
        parse_until(self.until)
        duration_ms(self.discovery_interval, "discovery_interval")
        _ = self._broker_timeout_ms
        check_settings(self._options)
        names = self.schema.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise OptionError(
                f"two columns of the source are named {twice[0]!r}: give key_prefix=, or another column name"
            )

    # --- Source ---

    @property
    def schema(self) -> pa.Schema:
        fields = [*self._key_fields(), *self._value_fields()]
        for name, column in self._metadata_columns().items():
            arrow, nullable = METADATA[name]
            fields.append(pa.field(column, arrow, nullable))
        return pa.schema([f for f in fields if self.columns is None or f.name in self.columns])

    @property
    def record_type(self) -> type | None:
        return self.value.record_type

    @property
    def has_kinds(self) -> bool:
        """See ChangelogSource."""
        return has_kinds(self.value)

    @property
    def lacks_before(self) -> bool:
        """See PartialChangelogSource."""
        return lacks_before(self.value)

    @property
    def can_pause(self) -> bool:
        """See PausableSource."""
        return True

    @property
    def is_bounded(self) -> bool:
        return self.until is not None

    def open_enumerator(self, job: str, clock: Clock) -> SplitEnumerator:
        metadata = ClusterMetadata(self._options, clock, self._broker_timeout_ms, "broker_timeout")
        subscription = Subscription(tuple(self.topics), self.topic_pattern)
        start = parse_start(self.start, self.group_id)
        interval_ms = None if self.is_bounded else duration_ms(self.discovery_interval, "discovery_interval")
        first_ms = FIRST_ANSWER_MS if self.broker_timeout is None else None
        return KafkaSplitEnumerator(
            metadata,
            subscription,
            start,
            self.isolation,
            interval_ms,
            first_ms,
            lambda other: parse_start(other, self.group_id),
            parse_until(self.until, clock.now_ms()),
        )

    def open_reader(self, context: ReaderContext) -> SourceReader:
        options = ReaderOptions(
            self._options,
            self.isolation,
            self.group_id,
            self._broker_timeout_ms,
            direct=self._direct(),
        )
        return KafkaReader(options, self.rows(), context)

    def project(self, columns: frozenset[str]) -> KafkaSource:
        """See ProjectableSource. A value is then decoded, and checked, as far as these columns need it."""
        unknown = sorted(columns - set(self.schema.names))
        if unknown:
            raise OptionError(f"no column {unknown[0]!r} to project{nearest(unknown[0], self.schema.names)}")
        return replace(self, columns=columns)

    def ended(self, until: Any) -> KafkaSource:
        """See EndableSource."""
        return replace(self, until=until)

    def dead_letter_sink(self) -> Sink | None:
        if self.dead_letter_topic is None:
            return self.dead_letters
        return DeadLetterSink(self.bootstrap_servers, self.dead_letter_topic, self.librdkafka)

    # --- Parts ---

    def rows(self) -> RowBuilder:
        """How records become rows, of the columns that are read."""
        key = None
        if self.key is not None:
            wanted = None
            if self.columns is not None:
                names = _columns(self.key, "key").names
                wanted = frozenset(name for name in names if self.key_prefix + name in self.columns)
            key = self.key.decoder(wanted)
        return RowBuilder(
            self.schema,
            key,
            self.value.decoder(self.columns),
            [name for name, column in self._metadata_columns().items() if self._is_read(column)],
            self.errors_tolerance,
        )

    def _direct(self) -> DirectReading | None:
        """How a backlog may be read past librdkafka: see may_be_direct."""
        return AS_USERS_DO if may_be_direct(self.librdkafka, DIRECT_FETCH_VARIABLE) else None

    @property
    def _broker_timeout_ms(self) -> int:
        given = BROKER_TIMEOUT if self.broker_timeout is None else self.broker_timeout
        return duration_ms(given, "broker_timeout")

    @property
    def _options(self) -> KafkaOptions:
        return KafkaOptions(self.bootstrap_servers, self.librdkafka)

    def _is_read(self, column: str) -> bool:
        return self.columns is None or column in self.columns

    def _key_fields(self) -> list[pa.Field]:
        if self.key is None:
            return []
        return [f.with_name(self.key_prefix + f.name) for f in _columns(self.key, "key")]

    def _value_fields(self) -> list[pa.Field]:
        return list(_columns(self.value, "value"))

    def _metadata_columns(self) -> dict[Metadata, str]:
        named: dict[Metadata, str | None] = {
            "headers": self.headers,
            "timestamp": self.timestamp,
            "topic": self.topic_column,
            "partition": self.partition_column,
            "offset": self.offset_column,
        }
        return {name: column for name, column in named.items() if column is not None}

    def _take_connect_names(self) -> None:
        unknown = sorted(set(self.errors) - _CONNECT_NAMES)
        if unknown:
            raise OptionError(
                f"errors={{{unknown[0]!r}: ...}} is not known{nearest(unknown[0], _CONNECT_NAMES)}"
            )
        for connect, ours in (
            ("errors.tolerance", "errors_tolerance"),
            ("errors.deadletterqueue.topic.name", "dead_letter_topic"),
        ):
            if connect in self.errors:
                self._set(ours, self.errors[connect])

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _columns(format: Format, option: str) -> pa.Schema:
    schema = format.schema
    if schema is None:
        raise OptionError(f"{option}={format!r} can only encode; to read, say what is in it: Json(Purchase)")
    return schema


def _check_topics(source: KafkaSource) -> None:
    if bool(source.topics) == (source.topic_pattern is not None):
        raise OptionError('give either topics=["events"] or topic_pattern="events-.*" to KafkaSource')
    if source.topic_pattern is not None:
        try:
            re.compile(source.topic_pattern)
        except re.error as error:
            raise OptionError(
                f"topic_pattern={source.topic_pattern!r} is not a regular expression: {error}"
            ) from error


def _check_choices(source: KafkaSource) -> None:
    if source.isolation not in get_args(Isolation):
        raise OptionError(f'isolation={source.isolation!r}: write "read_committed" or "read_uncommitted"')
    if source.dead_letters is not None and source.dead_letter_topic:
        raise OptionError(
            f"dead_letters= and dead_letter_topic={source.dead_letter_topic!r} are two places for the same "
            "records: leave one out"
        )
    if source.errors_tolerance == "none" and source.dead_letter_topic:
        raise OptionError('dead_letter_topic is of no use unless errors_tolerance="all"')
