"""KafkaSink: rows to a topic, exactly once: one transaction per checkpoint and subtask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats import Format, Json
from onceflow.connectors.kafka.options import BROKER_TIMEOUT, FIRST_ANSWER_MS, KafkaOptions, Setting
from onceflow.connectors.kafka.produce.gathering import Gathering
from onceflow.connectors.kafka.produce.marked_records import with_header
from onceflow.connectors.kafka.produce.row_encoder import RecordParts, RowEncoder, require_column
from onceflow.connectors.kafka.setting_names import check_settings
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.producer_settings import (
    MESSAGE_BYTES_MAX,
    ProducerSettings,
    best_route,
)
from onceflow.connectors.kafka.transactions.staged_writer import LEDGER_TOPIC, StagedSettings, StagedWriter
from onceflow.connectors.kafka.written_spans import spans_since
from onceflow.runtime.arguments import check_formats
from onceflow.runtime.arrays.recycled_memory import RecycledMemory
from onceflow.runtime.contracts import Committable, PreCommit, SinkContext
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import Fatal, GraphError, OptionError, UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import Records

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
    transaction_timeout: str | int = "2 min"
    delivery_timeout: str | int | None = None
    transactional_id_prefix: str | None = None
    ledger_topic: str = LEDGER_TOPIC
    librdkafka: Mapping[str, Setting] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_settings(self.options())
        duration_ms(self.transaction_timeout, "transaction_timeout")
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
        settings = StagedSettings(
            topics=[self.topic] if self.topic is not None else [],
            transactional_id_prefix=self.transactional_id_prefix,
            ledger_topic=self.ledger_topic,
            delivery_timeout_ms=self._delivery_timeout_ms,
            first_answer_ms=FIRST_ANSWER_MS if self.delivery_timeout is None else None,
        )
        producers = ProducerSettings(
            duration_ms(self.transaction_timeout, "transaction_timeout"),
            # Rows of a restored checkpoint may be for topics that this attempt has not looked up.
            message_bytes_max=None if self.topic_column is None else MESSAGE_BYTES_MAX,
            route=best_route(),
        )
        staged = StagedWriter(context, LibrdkafkaClient(self.options(), producers), settings)
        staged.start_sending_ahead()
        return KafkaSinkWriter(self, context, staged)


class KafkaSinkWriter:
    """SinkWriter: gathers rows, encodes them and hands them to a StagedWriter."""

    def __init__(self, sink: KafkaSink, context: SinkContext, staged: StagedWriter) -> None:
        self._sink = sink
        self._parts = sink.record_parts
        self._staged = staged
        self._encoders: dict[str, tuple[pa.Schema, RowEncoder]] = {}
        """For each topic that rows came for, and the columns of the latest."""
        self._memory = RecycledMemory()
        """The memory of encoded rows, which are held until they are committed."""
        self._clock = context.clock
        self._gathering = Gathering()
        self._next_partition = context.subtask
        self._uid = context.uid
        back = None if sink.upsert else context.went_back
        self._mark = None if back is None or not back.is_marked else str(back.to).encode()
        """The value of the header of records that may be there already."""
        if sink.topic is not None:
            self._check_topic(sink.topic)

    def recover(self, committables: Sequence[Committable]) -> None:
        self._staged.recover(committables)

    @property
    def has_room(self) -> bool:
        """See contracts.ThrottlingWriter."""
        return self._staged.has_room

    def write(self, records: Records) -> None:
        """A row that can't be written may be refused here or at the barrier."""
        if not len(records):
            return
        if not self._gathering.fits(records):
            self._encode()
        self._gathering.add(records)
        if self._gathering.is_enough:
            self._encode()

    def _encode(self) -> None:
        records, counts = self._gathering.take()
        column = self._sink.topic_column
        if column is None:
            assert self._sink.topic is not None, "one of them is given"
            self._encode_for(self._sink.topic, records, counts)
            return
        topics = pc.fill_null(records.batch.column(column), self._sink.topic or "")
        for topic in topics.unique().to_pylist():
            if not topic:
                raise Fatal(
                    f"sink {self._uid!r}: a row has no topic ({column} is null or empty): give topic= for "
                    "such rows, or filter them out"
                )
            of_topic = records.filter(pc.equal(topics, topic).to_numpy(zero_copy_only=False))
            self._encode_for(topic, of_topic, [len(of_topic)])

    def _encode_for(self, topic: str, records: Records, counts: list[int]) -> None:
        schema = records.batch.schema
        known = self._encoders.get(topic)
        if known is None:
            self._check_topic(topic)
        if known is None or not known[0].equals(schema):
            known = self._encoders[topic] = schema, RowEncoder(self._parts, topic, schema, self._memory)
        partitions = self._staged.topic(topic).partitions
        rows = known[1].encode(records, partitions, counts, self._next_partition)
        self._staged.write_rows(rows if self._mark is None else with_header(rows, self._mark))
        self._next_partition += len(counts)

    def _check_topic(self, topic: str) -> None:
        """Raises UsageError or Fatal if rows can't be written there as they are asked to be."""
        if topic == self._sink.ledger_topic:
            raise Fatal(
                f"sink {self._uid!r}: a row is for {topic!r}, which is the ledger's topic: give "
                "ledger_topic= another name, or let no row name it"
            )
        if self._sink.timestamp == "event-time":
            _check_retention(topic, self._staged)

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        if self._gathering:
            self._encode()
        self._memory.let_go(self._clock.monotonic_ms())
        return self._staged.pre_commit(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        self._staged.commit(checkpoint_id)

    def close(self) -> None:
        self._staged.close()


def _check_retention(topic: str, staged: StagedWriter) -> None:
    """Event time in the past is old for the broker: it deletes such output within minutes, silently."""
    description = staged.topic(topic)
    if description.uses_append_time:
        raise UsageError(
            f'timestamp="event-time": topic {topic!r} has message.timestamp.type=LogAppendTime, so the '
            "broker replaces it: set CreateTime on the topic, or leave timestamp out"
        )
    if description.retention_ms is None or description.retention_ms >= 0:
        kept = "unknown" if description.retention_ms is None else f"{description.retention_ms} ms"
        raise UsageError(
            f'timestamp="event-time": topic {topic!r} deletes records by their timestamp (retention.ms is '
            f"{kept}), so output of older event times would vanish: set retention.ms=-1 on the topic, or "
            "leave timestamp out and keep the event time in the value"
        )
