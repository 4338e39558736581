"""CheckedAssignment: partitions are assigned to a consumer together with what it must find there.

librdkafka compares the leader's epoch of a position with the broker's log (OffsetForLeaderEpoch, KIP-320)
when it hears of a new leader, but not when a partition is assigned. It always does so for `seek`, before
anything is fetched. So each partition whose last record is known is assigned and then sought at the same
offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow.connectors.kafka.fetched import Fetched
from onceflow.connectors.kafka.metadata import PartitionKey
from onceflow.connectors.kafka.reader_splits import SplitTable

NO_EPOCH = -1
"""The leader's epoch of a position behind which nothing was read, or of which it is not known."""
_NOT_YET = (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION, KafkaError._PREV_IN_PROGRESS)
"""How librdkafka refuses to seek in a partition that it has not begun with, or has not let go."""


class CheckedAssignment:
    """Used by the consumer's thread. A log that is not the one that was read comes as an error of its
    partition, `_AUTO_OFFSET_RESET`, with the text of `_LOG_TRUNCATION`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._unchecked: dict[PartitionKey, TopicPartition] = {}

    def checked(self, fetched: Fetched, splits: SplitTable) -> Fetched:
        """The part of a fetch that may be handed on. Records and ends of partitions that librdkafka has not
        begun to check are left out and come again. Their errors stay: librdkafka has given such a partition
        up, says so once, and refuses to seek in it until it is assigned anew."""
        if not self._unchecked:
            return fetched
        return fetched.without({splits.find(*key) for key in self._unchecked}, but_errors=True)

    def assign(self, positions: Sequence[TopicPartition]) -> None:
        """Fetch these as well, each from its offset, once the log before it is known to be the one that was
        read: if its last batch was of `leader_epoch`."""
        self._consumer.incremental_assign(list(positions))
        self._unchecked.update(
            {(each.topic, each.partition): each for each in positions if _epoch(each) != NO_EPOCH}
        )
        self.check()

    def unassign(self, positions: Sequence[TopicPartition]) -> None:
        for each in positions:
            self._unchecked.pop((each.topic, each.partition), None)
        self._consumer.incremental_unassign(list(positions))

    def check(self) -> None:
        """Called before each fetch. A partition that was let go a moment ago begins a little later, and can't
        be sought until then."""
        for key, position in list(self._unchecked.items()):
            try:
                self._consumer.seek(position)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET:
                    raise
                continue
            del self._unchecked[key]


def _epoch(position: TopicPartition) -> int:
    return NO_EPOCH if position.leader_epoch is None else int(position.leader_epoch)
