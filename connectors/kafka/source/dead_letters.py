"""DeadLetterSink: records that could not be decoded, to a topic of their own, exactly once.

A dead letter has the original key, value and headers; what was wrong is in further headers, under
Kafka Connect's names where it has one, so that Connect's tools read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.options import KafkaOptions, Setting
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings, best_route
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA, Committable, PreCommit, SinkContext
from onceflow.runtime.errors import GraphError
from onceflow.runtime.records import Records

_REASON_CHARACTERS_MAX = 1_000
_STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER"}


@dataclass(frozen=True, slots=True)
class DeadLetterSink:
    """A Sink of DEAD_LETTER_SCHEMA. A dead letter is some hundred bytes larger than its record: a topic
    for records near the size limit needs a higher max.message.bytes than theirs."""

    bootstrap_servers: str
    topic: str
    librdkafka: Mapping[str, Setting] = field(default_factory=dict, repr=False)

    def check(self, schema: pa.Schema, uid: str) -> None:
        if schema != DEAD_LETTER_SCHEMA:
            raise GraphError(f"sink {uid!r} takes dead letters only, not rows with {', '.join(schema.names)}")

    def open_writer(self, context: SinkContext) -> DeadLetterWriter:
        options = KafkaOptions(self.bootstrap_servers, self.librdkafka)
        client = LibrdkafkaClient(options, ProducerSettings(route=best_route()))
        return DeadLetterWriter(
            self.topic, context, StagedWriter(context, client, StagedSettings([self.topic]))
        )


class DeadLetterWriter:
    """SinkWriter: adds the headers and hands the records to a StagedWriter."""

    def __init__(self, topic: str, context: SinkContext, staged: StagedWriter) -> None:
        self._topic = topic
        self._job = context.job
        self._subtask = context.subtask
        self._staged = staged

    def recover(self, committables: Sequence[Committable]) -> None:
        self._staged.recover(committables)

    @property
    def has_room(self) -> bool:
        """See contracts.ThrottlingWriter."""
        return self._staged.has_room

    def write(self, records: Records) -> None:
        rows = [self._record(letter) for letter in records.batch.to_pylist()]
        self._staged.write_rows(pa.RecordBatch.from_pylist(rows, schema=PRODUCE_SCHEMA))

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        return self._staged.pre_commit(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        self._staged.commit(checkpoint_id)

    def close(self) -> None:
        self._staged.close()

    def _record(self, letter: dict[str, Any]) -> dict[str, Any]:
        told = {
            "__connect.errors.topic": letter["topic"],
            "__connect.errors.partition": letter["partition"],
            "__connect.errors.offset": letter["offset"],
            "__connect.errors.connector.name": self._job,
            "__connect.errors.task.id": self._subtask,
            "__connect.errors.stage": _STAGES[letter["stage"]],
            "__connect.errors.exception.message": letter["reason"][:_REASON_CHARACTERS_MAX],
            "onceflow.errors.timestamp": letter["timestamp"],
        }
        added = [
            {"key": name, "value": str(value).encode()} for name, value in told.items() if value is not None
        ]
        return {
            "topic": self._topic,
            "partition": -1,  # chosen by the key, as Java producers do
            "key": letter["key"],
            "value": letter["value"],
            "headers": [*(letter["headers"] or ()), *added],
            "timestamp": None,
        }
