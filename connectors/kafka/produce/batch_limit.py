"""BatchLimit: how large batches may be, as far as a client's producers have found out.

A topic's max.message.bytes is that of a whole batch, and who may not read the topic's configuration learns
of it by a refusal only. A refused batch of several records is no reason to give up: its transaction is
aborted, and the next one is written in smaller batches. A record that is refused in a batch of its own is.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError

from onceflow.connectors.kafka.produce.record_size import too_large
from onceflow.runtime.errors import OnceflowError, Retryable

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""The codes by which brokers refuse a batch for its size."""
_SMALLER = 4
"""The divisor of the batch size after a refusal: a usual limit is met after three or four."""


class BatchTooLargeError(Retryable):
    """A batch of several records was refused for its size; the next producer writes smaller ones."""


@dataclass(frozen=True, slots=True)
class RefusedBatch:
    """What a broker refused for its size. `key` is its first record's; `records` may be of several batches
    where librdkafka does not tell them apart."""

    topic: str
    records: int
    size: int
    """The bytes of the batch before compression."""
    key: bytes | None = None


class BatchLimit:
    """How large the batches of one client may be, for all topics that it writes to."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """The largest batch of several records, before compression; 1: each record has a batch of its own."""

    def at_most(self, message_bytes_max: int) -> None:
        """One of the topics takes no larger batch."""
        self.bytes_max = max(1, min(self.bytes_max, message_bytes_max))

    def refused(self, batch: RefusedBatch) -> OnceflowError:
        """What to raise because of it. Batches are smaller from now on, unless that would not help."""
        if batch.records == 1 or self.bytes_max == 1:
            return too_large(batch.topic, batch.key, batch.size)
        self.bytes_max = max(1, min(self.bytes_max, batch.size) // _SMALLER)
        return BatchTooLargeError(
            f"topic {batch.topic!r} takes no batch of {batch.size} bytes (max.message.bytes or "
            f"segment.bytes): from now on a batch of several records has at most {self.bytes_max}"
        )
