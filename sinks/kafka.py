"""KafkaSink: rows to a topic, exactly once: one transaction per checkpoint and subtask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from onceflow.connectors.formats import Format, Json
from onceflow.connectors.kafka.options import BROKER_TIMEOUT, FIRST_ANSWER_MS, KafkaOptions, Setting
from onceflow.connectors.kafka.produce.row_encoder import RecordParts, RowEncoder, require_column
from onceflow.connectors.kafka.protocol.broker_access import may_access
from onceflow.connectors.kafka.setting_names import check_settings
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.prepared_writer import PreparedWriter
from onceflow.connectors.kafka.transactions.producer_settings import (
    MESSAGE_BYTES_MAX,
    ProducerSettings,
    best_route,
)
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.connectors.kafka.transactions.sink_writer import KafkaSinkWriter, RowsToTopics
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.connectors.kafka.written_spans import spans_since
from onceflow.runtime.arguments import check_formats
from onceflow.runtime.arrays.recycled_memory import RecycledMemory
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import GraphError, OptionError, UsageError
from onceflow.runtime.explained_calls import explained

_RESTART_MS = 60_000
"""How long a job may take to come up again."""
_ANY_TOPIC = "topic"
"""Stands for a topic that a column will name, while columns are checked."""


@explained
@dataclass(frozen=True, slots=True)
class KafkaSink:
    """Writes each row as one record of a topic. A Sink; opens nothing when it is made.

    `topic` is the topic of all rows. Or `topic_column` names a text column with the topic of each row, and
    rows where it is null go to `topic`. All topics have to exist; a row for a missing topic ends the job,
    which names the topic.

    `value` and `key_format` encode; `key` names the column or columns of the record's key (text and
    binary as they are, others by key_format=Json()), which stay part of the value. Rows go to the
    partition that Java's producers choose for the key (murmur2); rows without a key go to the
    partitions in turn, batch by batch. `partitioner` may name an integer column with the partition
    instead; `headers` a column of type list<struct<key: string, value: binary>>.

    `upsert=True`: the topic is a changelog by key, as compacted topics are. Streams with updates and deletes
    may be written: a delete becomes a record with the key and no value, the old row of an update is not
    written, and the engine keeps the order of a key's rows. Without it, such streams are refused.

    `timestamp`: "wall-clock", the time at which the row is sent; "event-time" is refused when the topic's
    retention would delete the output soon.

    The ledger that makes the output exactly once is an offset on `ledger_topic`, an empty topic which is
    created if it is missing. `delivery_timeout`: how long the broker may be away before the attempt fails;
    None: 2 min, but 15 s if the job has never run. `librdkafka`: further settings under their own names
    (SASL, SSL, linger, compression).

    `two_phase`: rows are written once, as they come, into a transaction that is prepared at the barrier and
    committed when the checkpoint is durable; nothing of them is in the checkpoint folder. So epochs may be
    larger than that folder. The price: if the job is down for longer than `transaction_timeout`, the broker
    has aborted the transaction, and the job stops with an error that says so; and readers under
    read_committed see nothing behind its first record before it is committed.

    `transaction_timeout`: after what time the broker aborts a transaction that is open; at most its
    transaction.max.timeout.ms. None: 2 min, or 15 min with two_phase, which is as much as brokers allow
    unless changed.
    """

    bootstrap_servers: str
    topic: str | None = None
    value: Format = field(default_factory=Json)
    key: str | Sequence[str] | None = None
    key_format: Format | None = None
    partitioner: str = "murmur2"
    headers: str | None = None
    topic_column: str | None = None
    upsert: bool = False
    timestamp: Literal["wall-clock", "event-time"] = "wall-clock"
    transaction_timeout: str | int | None = None
    delivery_timeout: str | int | None = None
    transactional_id_prefix: str | None = None
    ledger_topic: str = LEDGER_TOPIC
    two_phase: bool = False
    librdkafka: Mapping[str, Setting] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_settings(self.options())
        _ = self._transaction_timeout_ms
        _ = self._delivery_timeout_ms
        if self.timestamp not in ("wall-clock", "event-time"):
            raise OptionError(f'timestamp={self.timestamp!r} must be "wall-clock" or "event-time"')
        if self.topic is None and self.topic_column is None:
            raise OptionError("give topic=, or with topic_column= a column that names each row's topic")
        if self.topic is not None and not (isinstance(self.topic, str) and self.topic):
            raise OptionError("topic must be the name of a topic")
        if self.topic == self.ledger_topic:
            raise OptionError(
                f"topic and ledger_topic are both {self.topic!r}: the ledger needs a topic of its own"
            )
        if self.two_phase and not may_access(self.options().of_producers()):
            raise OptionError(
                "two_phase=True commits past librdkafka, which is not possible with these settings of "
                'librdkafka about how brokers are reached (the page "Kafka" has a list): leave two_phase out'
            )
        check_formats("encoder", value=self.value, key_format=self.key_format)
        if self.key_format is not None and self.key is None:
            raise OptionError("key_format is given but no key: name the key's column with key=")
        if self.upsert and self.key is None:
            raise OptionError("upsert=True needs a key: name the key's column with key=")
        if self.upsert and self.partitioner != "murmur2":
            raise OptionError(
                f"upsert=True with partitioner={self.partitioner!r}: records of one key could be in several "
                "partitions, where none replaces the other: leave partitioner out"
            )

    def options(self) -> KafkaOptions:
        return KafkaOptions(self.bootstrap_servers, self.librdkafka)

    @property
    def _delivery_timeout_ms(self) -> int:
        given = BROKER_TIMEOUT if self.delivery_timeout is None else self.delivery_timeout
        return duration_ms(given, "delivery_timeout")

    @property
    def _transaction_timeout_ms(self) -> int:
        given = self.transaction_timeout
        if given is None:
            given = "15 min" if self.two_phase else "2 min"
        return duration_ms(given, "transaction_timeout")

    @property
    def key_columns(self) -> tuple[str, ...]:
        return () if self.key is None else (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def takes_kinds(self) -> bool:
        """See ChangelogSink."""
        return self.upsert

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """See PartitionedSink."""
        return self.key_columns if self.upsert else ()

    def written_since(self, time_ms: int) -> Sequence[Mapping[str, str | int]]:
        """See TracedSink."""
        if self.timestamp == "event-time":
            raise UsageError(
                "records have their event time, so nothing tells when they were written: look for them by "
                "their keys, or by the header of those that are written now"
            )
        topics = [] if self.topic is None else [self.topic]
        spans = spans_since(self.options(), topics, time_ms, self._delivery_timeout_ms)
        if self.topic_column is None:
            return spans
        return [*spans, {"message": f"and in the topics that the column {self.topic_column} has named"}]

    @property
    def record_parts(self) -> RecordParts:
        return RecordParts(
            self.value,
            self.key_columns,
            self.key_format,
            self.partitioner,
            self.headers,
            self.timestamp == "event-time",
            self.upsert,
        )

    @property
    def rows_to_topics(self) -> RowsToTopics:
        return RowsToTopics(self.topic, self.topic_column, self.record_parts, self.ledger_topic)

    def check(self, schema: pa.Schema, uid: str) -> None:
        try:
            if self.topic_column is not None:
                require_column(schema, self.topic_column, "topic_column")
                found = schema.field(self.topic_column).type
                if found not in (pa.string(), pa.large_string()):
                    raise GraphError(f"topic_column={self.topic_column!r} must be a text column, not {found}")
            RowEncoder(self.record_parts, self.topic or _ANY_TOPIC, schema, RecycledMemory())
        except UsageError as e:
            raise GraphError(f"sink {uid!r}: {e}") from e

    def open_writer(self, context: SinkContext) -> KafkaSinkWriter:
        if self.two_phase:
            self._check_timeout(context)
        output = StagedSettings(
            topics=[self.topic] if self.topic is not None else [],
            transactional_id_prefix=self.transactional_id_prefix,
            ledger_topic=self.ledger_topic,
            delivery_timeout_ms=self._delivery_timeout_ms,
            first_answer_ms=FIRST_ANSWER_MS if self.delivery_timeout is None else None,
        )
        producers = ProducerSettings(
            self._transaction_timeout_ms,
            # Rows of a restored checkpoint may be for topics that this attempt has not looked up.
            message_bytes_max=None if self.topic_column is None else MESSAGE_BYTES_MAX,
            route=best_route(),
        )
        client = LibrdkafkaClient(self.options(), producers)
        if self.two_phase:
            prepared = PreparedWriter(context, client, output)
            prepared.start_sending()
            return KafkaSinkWriter(self.rows_to_topics, context, prepared)
        staged = StagedWriter(context, client, output)
        staged.start_sending_ahead()
        return KafkaSinkWriter(self.rows_to_topics, context, staged)

    def _check_timeout(self, context: SinkContext) -> None:
        """What a checkpoint promises has to outlive a restart of the job, and the checkpoint after it."""
        interval_ms, timeout_ms = context.checkpoint_interval_ms, self._transaction_timeout_ms
        if interval_ms is not None and 2 * interval_ms + _RESTART_MS > timeout_ms:
            raise UsageError(
                f"sink {context.uid!r}: two_phase=True with transaction_timeout {timeout_ms / 1000:.0f} s "
                f"and a checkpoint each {interval_ms / 1000:.0f} s: the broker would abort the output of a "
                "checkpoint before the job has come up again and committed it: make the checkpoint interval "
                "shorter or transaction_timeout longer (two intervals and a minute at least), or leave "
                "two_phase out"
            )
