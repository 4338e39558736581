"""A Kafka sink with a column that names each row's topic, on a broker in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka.client import TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.sink_writer import KafkaSinkWriter
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import Records
from onceflow.sinks.kafka import KafkaSink

TOPICS = {"small": TopicDescription(2, max_message_bytes=1_000), "large": TopicDescription(5, 100_000)}


def opened(broker: FakeKafka, topic: str | None = None) -> KafkaSinkWriter:
    sink = KafkaSink("localhost:9092", topic, value=Raw("value"), topic_column="to")
    files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
    context = SinkContext("job", "beef", "out", 0, 1, 1, 0, files, ManualClock(), pa.schema([]))
    client = FakeClient(FakeNetwork(broker, NoFaults()))
    staged = StagedWriter(context, client, StagedSettings([] if topic is None else [topic]))
    writer = KafkaSinkWriter(sink.rows_to_topics, context, staged)
    writer.recover([])
    return writer


def rows(*rows: tuple[str | None, bytes]) -> Records:
    to, values = zip(*rows, strict=True)
    columns = {"to": pa.array(to, pa.string()), "value": pa.array(values, pa.binary())}
    return Records(pa.RecordBatch.from_pydict(columns))


def committed(writer: KafkaSinkWriter, broker: FakeKafka) -> Sequence[tuple[str, bytes]]:
    writer.pre_commit(1).stage()
    assert not broker.visible
    writer.commit(1)
    return [(row["topic"], row["value"]) for row in broker.visible]


def test_each_row_goes_to_the_topic_that_it_names() -> None:
    broker = FakeKafka(TOPICS)
    writer = opened(broker)
    writer.write(rows(("small", b"1"), ("large", b"2"), ("small", b"3")))
    writer.write(rows(("large", b"4")))
    seen = committed(writer, broker)
    assert [value for topic, value in seen if topic == "small"] == [b"1", b"3"]
    assert [value for topic, value in seen if topic == "large"] == [b"2", b"4"]
    assert len(seen) == 4


def test_rows_that_name_none_go_to_the_sinks_own_topic() -> None:
    broker = FakeKafka(TOPICS)
    writer = opened(broker, topic="small")
    writer.write(rows((None, b"1"), ("large", b"2")))
    assert sorted(committed(writer, broker)) == [("large", b"2"), ("small", b"1")]


@pytest.mark.parametrize("topic", [None, ""])
def test_rows_that_name_none_are_refused_where_the_sink_has_none(topic: str | None) -> None:
    writer = opened(FakeKafka(TOPICS))
    writer.write(rows((topic, b"1")))
    with pytest.raises(Fatal, match=r"a row has no topic \(to is null or empty\): give topic="):
        writer.pre_commit(1)


def test_a_row_for_a_topic_that_does_not_exist_is_refused_before_its_checkpoint() -> None:
    writer = opened(FakeKafka(TOPICS))
    writer.write(rows(("small", b"1"), ("other", b"2")))
    with pytest.raises(Fatal, match="topic 'other' does not exist: create it"):
        writer.pre_commit(1)


def test_no_row_goes_to_the_topic_of_the_ledger() -> None:
    writer = opened(FakeKafka({**TOPICS, "onceflow-ledger": TopicDescription(1)}))
    writer.write(rows(("onceflow-ledger", b"1")))
    with pytest.raises(Fatal, match="which is the ledger's topic"):
        writer.pre_commit(1)


def test_a_row_may_be_as_large_as_its_own_topic_takes() -> None:
    broker = FakeKafka(TOPICS)
    writer = opened(broker)
    writer.write(rows(("small", b"1"), ("large", b"x" * 2_000)))
    assert len(committed(writer, broker)) == 2
    writer.write(rows(("small", b"x" * 2_000)))
    with pytest.raises(Fatal, match="for topic 'small' is too large"):
        writer.pre_commit(2)
