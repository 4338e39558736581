"""What the auditor reads: whole topics as read_committed consumers see them, and what holds those back."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as PyKafkaError
from kafka.structs import TopicPartition as PyTopicPartition

from onceflow.cli.audit import RawRecords
from onceflow.runtime.errors import OnceflowError, UsageError

_CHUNK = 50_000
_TIMEOUT_S = 30.0


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


class TopicReader:
    """Reads topics to their last stable offset as it was when reading began. Close it after use."""

    def __init__(self, bootstrap_servers: str, client: Mapping[str, str]) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "onceflow-verify",  # never joined: partitions are assigned by hand
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "queued.min.messages": 200_000,
            "fetch.queue.backoff.ms": 10,  # the default waits 1 s whenever the queue was full
            "log_level": 2,
            **client,
        }
        self._consumer = Consumer({**self._settings, "isolation.level": "read_committed"})

    def close(self) -> None:
        self._consumer.close()

    def ends(self, topic: str, isolation: str = "read_committed") -> dict[int, tuple[int, int]]:
        """First and next offset of each partition; with read_uncommitted, past open transactions too."""
        consumer = self._consumer
        if isolation != "read_committed":
            consumer = Consumer({**self._settings, "isolation.level": isolation})
        try:
            found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
            if found.error is not None:
                raise UsageError(f"topic {topic} can't be read: {found.error.str()}")
            return {
                partition: consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=_TIMEOUT_S
                )
                for partition in found.partitions
            }
        except KafkaException as error:
            broker = self._settings["bootstrap.servers"]
            raise OnceflowError(f"{broker} does not answer ({error.args[0].str()}): is it running?") from None
        finally:
            if consumer is not self._consumer:
                consumer.close()

    def chunks(self, topic: str, on_progress: Callable[[int, int], None]) -> Iterator[RawRecords]:
        """All committed records. `on_progress` gets offsets passed and offsets in all (markers included)."""
        ends = {p: low_high for p, low_high in self.ends(topic).items() if low_high[0] < low_high[1]}
        total = sum(high - low for low, high in ends.values())
        self._consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
        left = {p: high - low for p, (low, high) in ends.items()}
        while any(left.values()):
            by_partition: dict[int, list[Any]] = defaultdict(list)
            consumed: list[Any] = self._consumer.consume(_CHUNK, timeout=1.0)
            for message in consumed:
                by_partition[message.partition()].append(message)
            for partition, messages in by_partition.items():
                yield self._committed(topic, partition, messages, ends[partition][1], left)
            on_progress(total - sum(left.values()), total)
        self._consumer.unassign()

    def _committed(
        self, topic: str, partition: int, messages: list[Any], end: int, left: dict[int, int]
    ) -> RawRecords:
        """One partition's part of what was consumed; notes in `left` how many offsets are still to come."""
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
        values = [message.value() for message in records]
        return RawRecords(values, partition, [message.offset() for message in records])

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
        owners: dict[tuple[int, int], tuple[int, str | None]] = {}
        with contextlib.suppress(PyKafkaError), contextlib.closing(self._admin()) as admin:
            listed = admin.list_transactions().values()
            names = {t.producer_id: t.transactional_id for transactions in listed for t in transactions}
            described = admin.describe_producers([PyTopicPartition(topic, p) for p in partitions])
            for where, state in described.items():
                for producer in state.active_producers:
                    at = (where.partition, producer.current_transaction_start_offset)
                    owners[at] = (producer.producer_id, names.get(producer.producer_id))
        return owners

    def _admin(self) -> Any:
        renamed = {
            "security.protocol": "security_protocol",
            "sasl.mechanism": "sasl_mechanism",
            "sasl.username": "sasl_plain_username",
            "sasl.password": "sasl_plain_password",
            "ssl.ca.location": "ssl_cafile",
        }
        known = {ours: self._settings[theirs] for theirs, ours in renamed.items() if theirs in self._settings}
        return KafkaAdminClient(bootstrap_servers=self._settings["bootstrap.servers"], **known)
