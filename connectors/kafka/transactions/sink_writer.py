"""KafkaSinkWriter: rows become records of the topics that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.kafka.produce.gathering import Gathering
from onceflow.connectors.kafka.produce.marked_records import with_header
from onceflow.connectors.kafka.produce.row_encoder import RecordParts, RowEncoder
from onceflow.connectors.kafka.transactions.prepared_writer import PreparedWriter
from onceflow.connectors.kafka.transactions.staged_writer import StagedWriter
from onceflow.runtime.arrays.recycled_memory import RecycledMemory
from onceflow.runtime.contracts import Committable, PreCommit, SinkContext
from onceflow.runtime.errors import Fatal, UsageError
from onceflow.runtime.records import Records

CommittingWriter: TypeAlias = StagedWriter | PreparedWriter
"""What takes records, and commits them."""


@dataclass(frozen=True, slots=True)
class RowsToTopics:
    """Which topic a row is for, and how it becomes a record: see KafkaSink."""

    topic: str | None
    topic_column: str | None
    parts: RecordParts
    ledger_topic: str


class KafkaSinkWriter:
    """SinkWriter: gathers rows, encodes them and hands them to the writer that commits them."""

    def __init__(self, target: RowsToTopics, context: SinkContext, output: CommittingWriter) -> None:
        self._target = target
        self._parts = target.parts
        self._output = output
        self._encoders: dict[str, tuple[pa.Schema, RowEncoder]] = {}
        """For each topic that rows came for, and the columns of the latest."""
        self._memory = RecycledMemory()
        """The memory of encoded rows, which are held until they are committed."""
        self._clock = context.clock
        self._gathering = Gathering()
        self._next_partition = context.subtask
        self._uid = context.uid
        back = None if target.parts.is_upsert else context.went_back
        self._mark = None if back is None or not back.is_marked else str(back.to).encode()
        """The value of the header of records that may be there already."""
        if target.topic is not None:
            self._check_topic(target.topic)

    def recover(self, committables: Sequence[Committable]) -> None:
        self._output.recover(committables)

    @property
    def has_room(self) -> bool:
        """See contracts.ThrottlingWriter."""
        return self._output.has_room

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
        column = self._target.topic_column
        if column is None:
            assert self._target.topic is not None, "one of them is given"
            self._encode_for(self._target.topic, records, counts)
            return
        topics = pc.fill_null(records.batch.column(column), self._target.topic or "")
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
        partitions = self._output.topic(topic).partitions
        rows = known[1].encode(records, partitions, counts, self._next_partition)
        self._output.write_rows(rows if self._mark is None else with_header(rows, self._mark))
        self._next_partition += len(counts)

    def _check_topic(self, topic: str) -> None:
        """Raises UsageError or Fatal if rows can't be written there as they are asked to be."""
        if topic == self._target.ledger_topic:
            raise Fatal(
                f"sink {self._uid!r}: a row is for {topic!r}, which is the ledger's topic: give "
                "ledger_topic= another name, or let no row name it"
            )
        if self._target.parts.has_event_time:
            _check_retention(topic, self._output)

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        if self._gathering:
            self._encode()
        self._memory.let_go(self._clock.monotonic_ms())
        return self._output.pre_commit(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        self._output.commit(checkpoint_id)

    def close(self) -> None:
        self._output.close()


def _check_retention(topic: str, writer: CommittingWriter) -> None:
    """Event time in the past is old for the broker: it deletes such output within minutes, silently."""
    description = writer.topic(topic)
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
