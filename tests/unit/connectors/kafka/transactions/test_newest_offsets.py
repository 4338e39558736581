"""A read of now: who answers has the mark that was just written (a real cluster:
integration/test_replaced_coordinator)."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from onceflow.connectors.kafka.transactions.newest_offsets import NewestOffsets
from onceflow.runtime.errors import Retryable


class Reader:
    """A Consumer whose coordinator has `offset`, and takes marks, or not."""

    def __init__(self, *, offset: int = 5, error: KafkaError | None = None, answers: bool = True) -> None:
        self.newest = NewestOffsets("ledgers")
        self.offset = offset
        self.marks = [""]
        self._error = error
        self._answers = answers
        self.shows = -1
        """Which of the marks is the answer."""

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous, "the other has no deadline"
        (position,) = offsets
        assert (position.topic, position.partition, position.offset) == ("ledgers", 1, 0)
        self.marks.append(position.metadata)

    def poll(self, timeout: float) -> None:
        if self._answers:
            self.newest.on_commit(self._error, [])

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert [position.partition for position in wanted] == [0, 1]
        mark = self.marks[self.shows]
        return [TopicPartition("ledgers", 0, self.offset), TopicPartition("ledgers", 1, 0, metadata=mark)]

    def read(self) -> TopicPartition:
        reader: Any = self
        return self.newest.read(reader, timeout_s=0.2)


def test_who_has_the_mark_is_believed() -> None:
    reader = Reader()
    assert reader.read().offset == 5
    reader.offset = 6
    assert reader.read().offset == 6
    assert len(set(reader.marks)) == 3, "each read has its own"


def test_who_has_an_older_mark_is_not() -> None:
    reader = Reader()
    reader.read()
    reader.shows = -2
    with pytest.raises(Retryable, match="not the coordinator any more"):
        reader.read()


@pytest.mark.parametrize("answers", [True, False])
def test_a_mark_that_is_refused_or_not_answered_is_an_error(answers: bool) -> None:
    code = KafkaError.GROUP_AUTHORIZATION_FAILED if answers else KafkaError._TIMED_OUT
    reader = Reader(error=KafkaError(code), answers=answers)
    with pytest.raises(KafkaException) as failed:
        reader.read()
    assert failed.value.args[0].code() == code
