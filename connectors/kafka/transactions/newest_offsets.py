"""Reads what a group has committed by now, of a consumer, and of no coordinator that was replaced.

A broker that is frozen for longer than its session, and wakes up, takes itself for the coordinator that it
was until it has read the cluster's metadata. It answers OffsetFetch with what it knew then, and nothing in
the answer tells (seen with Kafka 4.2.1: twenty answers, a value behind, while another broker had committed
the next). But it can't write, since nobody copies from it. So a mark that is new goes into another partition
first, and both are asked for at once: who answers with the mark has all that was written before it.
"""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from onceflow.runtime.errors import Retryable

_POLL_S = 0.01
"""A callback is served in a poll, which goes on to its end."""
_MARKED = 1
"""The partition of the mark. Its offset is 0, its metadata the mark."""


class NewestOffsets:
    """Newest offsets of one group reader (`committed_offsets.py`), whose callback of commits is `on_commit`.
    One thread at a time."""

    def __init__(self, topic: str) -> None:
        """`topic`: one with two partitions at least, of which nobody commits the second."""
        self._topic = topic
        self._answers: list[KafkaError | None] = []
        """What became of the last mark; empty: it is not answered."""

    def on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        of_partition = next((each.error for each in positions if each.error is not None), None)
        self._answers.append(error or of_partition)

    def read(self, reader: Consumer, timeout_s: float) -> TopicPartition:
        """The newest offset of partition 0, as `Consumer.committed` gives it. Raises KafkaException, and
        Retryable where a coordinator that was replaced has answered. It writes for the group, so the group
        needs what its commits need."""
        deadline = time.monotonic() + timeout_s
        mark, self._answers = uuid.uuid4().hex, []
        reader.commit(offsets=[TopicPartition(self._topic, _MARKED, 0, metadata=mark)], asynchronous=True)
        while not self._answers:
            reader.poll(_POLL_S)
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = self._answers[-1]  # one that came late may be before it
        if error is not None:
            raise KafkaException(error)
        wanted = [TopicPartition(self._topic, number) for number in (0, _MARKED)]
        newest, marked = reader.committed(wanted, timeout=max(_POLL_S, deadline - time.monotonic()))
        if marked.error is None and marked.metadata != mark:
            raise Retryable(
                f"a broker that is not the coordinator any more, or another writer, answered for the offsets "
                f"on topic {self._topic}"
            )
        return newest
