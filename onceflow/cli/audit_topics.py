"""What the auditor reads: whole topics as read_committed consumers see them, and what holds those back."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, TopicPartition

from onceflow.cli.audit import RawRecords
from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.options import Isolation, KafkaOptions
from onceflow.connectors.kafka.setting_names import check_settings
from onceflow.connectors.kafka.transactions.hanging import TransactionDoctor
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import OnceflowError, Retryable, Unavailable, UsageError

_CHUNK = 50_000
_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction on a topic that is neither committed nor aborted: readers stop at `first_offset`."""

    topic: str
    partition: int
    first_offset: int
    held_back: int
    producer_id: int | None = None
    transactional_id: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class ValuesAsJson(Protocol):
    """How values are JSON, where they are not written as such."""

    def as_json(self, raw: bytes) -> bytes:
        """The value's JSON. Raises OnceflowError saying why it has none; Retryable where nobody can say."""
        ...


class TopicReader:
    """Reads topics to their last stable offset as it was when reading began. Close it after use."""

    def __init__(
        self,
        bootstrap_servers: str,
        client: Mapping[str, str],
        timeout_ms: int = _TIMEOUT_MS,
        values: ValuesAsJson | None = None,
    ) -> None:
        """`client`: settings by librdkafka's names. `timeout_ms`: how long Kafka is waited for. `values`:
        None where all of them are JSON."""
        self._values = values
        self._timeout_ms = timeout_ms
        self._options = KafkaOptions(bootstrap_servers, {"log_level": "2", **client})
        check_settings(self._options)
        self._clock = SystemClock()
        self._cluster = ClusterMetadata(self._options, self._clock, timeout_ms)
        defaults: dict[str, Any] = {
            "queued.min.messages": 200_000,
            "fetch.queue.backoff.ms": 10,  # the default waits 1 s whenever the queue was full
        }
        self._consumer = Consumer(
            self._options.assigned_consumer("onceflow-verify", "read_committed", defaults)
        )

    def close(self) -> None:
        self._consumer.close()
        self._cluster.close()

    def ends(self, topic: str, isolation: Isolation = "read_committed") -> dict[int, tuple[int, int]]:
        """First and next offset of each partition; with read_uncommitted, past open transactions too."""
        found = self._cluster.describe([topic]).get(topic)
        if found is None:
            servers = self._options.bootstrap_servers
            raise UsageError(f"topic {topic} can't be read: Kafka at {servers} has none of this name")
        first = self._cluster.offsets(found.keys, "earliest", isolation)
        end = self._cluster.offsets(found.keys, "latest", isolation)
        return {partition: (first[topic, partition], end[topic, partition]) for _, partition in found.keys}

    def chunks(self, topic: str, on_progress: Callable[[int, int], None]) -> Iterator[RawRecords]:
        """All committed records. `on_progress` gets offsets passed and offsets in all (markers included)."""
        ends = {p: low_high for p, low_high in self.ends(topic).items() if low_high[0] < low_high[1]}
        total = sum(high - low for low, high in ends.values())
        self._consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
        left = {p: high - low for p, (low, high) in ends.items()}
        moved_at_ms = self._clock.monotonic_ms()
        while any(left.values()):
            by_partition: dict[int, list[Any]] = defaultdict(list)
            consumed: list[Any] = self._consumer.consume(_CHUNK, timeout=1.0)
            if consumed:
                moved_at_ms = self._clock.monotonic_ms()
            elif self._clock.monotonic_ms() - moved_at_ms > self._timeout_ms:
                stuck = next(partition for partition, count in left.items() if count)
                raise Unavailable(
                    f"Kafka at {self._options.bootstrap_servers} gave no record of {topic}-{stuck} for "
                    f"{self._timeout_ms / 1000:g} s: see whether the partition has a leader"
                )
            for message in consumed:
                by_partition[message.partition()].append(message)
            for partition, messages in by_partition.items():
                yield self._committed(topic, partition, messages, ends[partition][1], left)
            on_progress(total - sum(left.values()), total)
        self._consumer.unassign()

    def _committed(
        self, topic: str, partition: int, messages: list[Any], end: int, left: dict[int, int]
    ) -> RawRecords:
        """The committed records of one partition in what was consumed; notes in `left` how many offsets are
        still to come."""
        records = [message for message in messages if message.error() is None]
        for message in messages if len(records) < len(messages) else ():
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise OnceflowError(f"reading {topic} failed: {error.str()}")
        last = messages[-1]
        # The offset of an end-of-partition event is past the markers, behind which no record comes.
        passed = last.offset() + (last.error() is None)
        left[partition] = max(0, end - passed)
        if passed > end:  # written since reading began
            records = [message for message in records if message.offset() < end]
        values, offsets = [message.value() for message in records], [message.offset() for message in records]
        if self._values is None:
            return RawRecords(values, partition, offsets)
        reasons: dict[int, str] = {}
        for n, (value, offset) in enumerate(zip(values, offsets, strict=True)):
            try:
                values[n] = self._values.as_json(value) if value is not None else None
            except Retryable as error:
                raise type(error)(f"{topic}-{partition}, offset {offset}: {error}") from error
            except OnceflowError as error:
                values[n], reasons[offset] = None, str(error)
        return RawRecords(values, partition, offsets, reasons)

    def open_transactions(self, topic: str) -> list[OpenTransaction]:
        """What keeps readers of committed records from the end of the topic, with its owner where known."""
        stable, ends = self.ends(topic), self.ends(topic, "read_uncommitted")
        held = {p: ends[p][1] - stable[p][1] for p in ends if ends[p][1] > stable[p][1]}
        owners = self._owners(topic, list(held)) if held else {}
        return [
            OpenTransaction(topic, p, stable[p][1], count, *owners.get((p, stable[p][1]), (None, None)))
            for p, count in sorted(held.items())
        ]

    def _owners(self, topic: str, partitions: list[int]) -> dict[tuple[int, int], tuple[int, str | None]]:
        """(partition, first offset) to producer id and transactional id; empty if the broker refuses."""
        with contextlib.suppress(Retryable), TransactionDoctor(self._options) as doctor:
            return doctor.owners(topic, partitions)
        return {}
