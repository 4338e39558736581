"""A Kafka sink gathers small batches: nothing is lost, doubled or reordered, and each is sent once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka.client import TopicDescription
from onceflow.connectors.kafka.produce.gathering import BYTES_ENOUGH, ROWS_ENOUGH, Gathering
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


class Writing:
    """A KafkaSinkWriter on a broker in memory."""

    def __init__(self, topic: TopicDescription | None = None) -> None:
        self.broker = FakeKafka({"out": topic or TopicDescription(3)})
        files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
        context = SinkContext("job", "beef", "out", 0, 1, 1, 0, files, ManualClock(), pa.schema([]))
        client = FakeClient(FakeNetwork(self.broker, NoFaults()))
        staged = StagedWriter(context, client, StagedSettings(["out"]))
        sink = KafkaSink("localhost:9092", "out", value=Raw("value"))
        self.writer = KafkaSinkWriter(sink.rows_to_topics, context, staged)
        self.writer.recover([])

    def checkpoint(self, checkpoint_id: int) -> int:
        """Pre-commit, stage and commit; how many rows were staged."""
        committable = self.writer.pre_commit(checkpoint_id).stage()
        self.writer.commit(checkpoint_id)
        outputs: Sequence[dict[str, int]] = committable.payload["outputs"]  # type: ignore[index,assignment,call-overload]
        return sum(output["rows"] for output in outputs)

    @property
    def visible(self) -> list[tuple[int, bytes]]:
        return [(row["partition"], row["value"]) for row in self.broker.visible]


def rows(*values: bytes) -> Records:
    return Records(pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())}))


def test_what_was_gathered_is_part_of_the_next_checkpoint_and_of_no_other() -> None:
    writing = Writing()
    writing.writer.write(rows(b"1"))
    writing.writer.write(rows(b"2", b"3"))
    assert writing.checkpoint(1) == 3
    assert writing.checkpoint(2) == 0
    writing.writer.write(rows(b"4"))
    assert writing.checkpoint(3) == 1
    assert sorted(value for _, value in writing.visible) == [b"1", b"2", b"3", b"4"]


def test_rows_without_a_key_go_batch_by_batch_to_one_partition_after_the_other() -> None:
    writing = Writing()
    for batch in ((b"1", b"2"), (b"3",), (b"4",), (b"5", b"6"), (b"7",)):
        writing.writer.write(rows(*batch))
    writing.checkpoint(1)
    writing.writer.write(rows(b"8"))
    writing.checkpoint(2)
    of_partition = {p: [value for q, value in writing.visible if q == p] for p in range(3)}
    assert of_partition == {0: [b"1", b"2", b"5", b"6"], 1: [b"3", b"7"], 2: [b"4", b"8"]}


def test_batches_with_other_columns_are_not_put_into_one() -> None:
    writing = Writing()
    writing.writer.write(rows(b"1"))
    other = pa.RecordBatch.from_pydict({"value": pa.array([b"2"], pa.binary()), "more": [1]})
    writing.writer.write(Records(other))
    assert writing.checkpoint(1) == 2


def test_a_row_that_is_too_large_is_refused_before_its_checkpoint() -> None:
    writing = Writing(TopicDescription(1, max_message_bytes=1_000))
    writing.writer.write(rows(b"small"))
    writing.writer.write(rows(b"x" * 1_001))
    with pytest.raises(Fatal, match="too large"):
        writing.writer.pre_commit(1)


def test_it_is_enough_by_rows_or_by_bytes() -> None:
    gathering = Gathering()
    gathering.add(rows(*[b""] * (ROWS_ENOUGH - 1)))
    assert not gathering.is_enough
    gathering.add(rows(b""))
    assert gathering.is_enough
    gathering.take()
    assert not gathering
    gathering.add(rows(b"x" * BYTES_ENOUGH))
    assert gathering.is_enough


def test_many_are_taken_as_one_in_order_with_their_event_times() -> None:
    gathering = Gathering()
    for first in (0, 2):
        times = np.array([first, first + 1], np.int64)
        gathering.add(Records(rows(b"%d" % first, b"%d" % (first + 1)).batch, times))
    taken, counts = gathering.take()
    assert taken.batch["value"].to_pylist() == [b"0", b"1", b"2", b"3"]
    assert taken.event_time is not None
    assert taken.event_time.tolist() == [0, 1, 2, 3]
    assert counts == [2, 2]
