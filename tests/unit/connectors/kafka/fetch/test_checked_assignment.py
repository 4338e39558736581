"""What is handed on of a partition before librdkafka has begun to compare its log with what was read."""

from __future__ import annotations

from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from onceflow.connectors.kafka.fetch.checked_assignment import CheckedAssignment
from onceflow.connectors.kafka.fetched import Fetched, Notice
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.split import KafkaSplit

NOT_YET = KafkaException(KafkaError(KafkaError._STATE))
KNOWN, FRESH = 0, 1
"""Two partitions: of one the last record is known, of the other nothing was read."""


class SlowConsumer:
    """One that begins with partitions later than it is told to, as librdkafka sometimes does."""

    def __init__(self) -> None:
        self.has_begun = False
        self.sought: list[int] = []

    def incremental_assign(self, positions: list[TopicPartition]) -> None: ...

    def seek(self, position: TopicPartition) -> None:
        if not self.has_begun:
            raise NOT_YET
        self.sought.append(position.offset)


def assigned() -> tuple[Any, CheckedAssignment, SplitTable]:
    consumer: Any = SlowConsumer()
    splits = SplitTable()
    splits.add([KafkaSplit("t", "", number, 5, None) for number in (KNOWN, FRESH)])
    assignment = CheckedAssignment(consumer)
    assignment.assign([TopicPartition("t", KNOWN, 5, leader_epoch=0), TopicPartition("t", FRESH, 5)])
    return consumer, assignment, splits


def fetched(*codes: int) -> Fetched:
    """A record of each partition, and these notices of the first."""
    notices = [Notice(KafkaError(code), KNOWN, 5, 1) for code in codes]
    return Fetched([b"a", b"b"], np.array([KNOWN, FRESH], np.uint16), np.array([5, 5]), notices)


def test_records_and_ends_of_a_partition_come_when_it_is_checked() -> None:
    consumer, assignment, splits = assigned()
    came = fetched(KafkaError._PARTITION_EOF)
    checked = assignment.checked(came, splits)
    assert (checked.value, checked.row_split.tolist(), checked.notices) == ([b"b"], [FRESH], [])
    consumer.has_begun = True
    assignment.check()
    assert consumer.sought == [5]
    assert assignment.checked(came, splits) is came


def test_an_error_of_a_partition_that_is_not_checked_yet_is_told() -> None:
    """It is told once, and from then on librdkafka reads nothing of the partition and refuses to seek in it:
    unheard, it would be the end of reading without a word."""
    _, assignment, splits = assigned()
    checked = assignment.checked(fetched(KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF), splits)
    assert checked.value == [b"b"]
    assert [(n.error.code(), n.split, n.after) for n in checked.notices] == [
        (KafkaError._AUTO_OFFSET_RESET, KNOWN, 0)
    ]
