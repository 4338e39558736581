"""Topic: a topic of a test, with records written and read in one call."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from onceflow.connectors.formats import Json
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.route import LOG
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.record_types import describe_record

_TIMEOUT_S = 30.0


@explained
class Topic:
    """A topic that is there. What is read of it is what read_committed consumers see."""

    def __init__(self, bootstrap_servers: str, name: str, partitions: int = 1) -> None:
        """Makes the topic. Raises OnceflowError if it can't be made."""
        self.bootstrap_servers = bootstrap_servers
        """The broker's address."""
        self.name = name
        """The topic's name."""
        self._partitions = partitions
        self._options = KafkaOptions(bootstrap_servers)
        admin = AdminClient(self._options.admin({"logger": LOG}))
        made = admin.create_topics([NewTopic(name, partitions)], request_timeout=_TIMEOUT_S)
        try:
            made[name].result()
        except KafkaException as error:
            raise OnceflowError(f"topic {name} can't be made: {error.args[0].str()}") from error

    def __str__(self) -> str:
        return self.name

    def produce(self, *records: Any, key: str | Callable[[Any], str] | None = None) -> None:
        """Write records: bytes as they are, text as UTF-8, records as `Json()` writes them, anything else as
        JSON. `key`: that of all, or a function of each. Returns when the broker has them."""
        ours: dict[str, Any] = {"enable.idempotence": True, "partitioner": "murmur2_random", "logger": LOG}
        producer = Producer(self._options.producer(ours))
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failed.append(error)

        for record in records:
            chosen = key(record) if callable(key) else key
            producer.produce(self.name, _as_bytes(record), chosen, on_delivery=delivered)
            producer.poll(0)
        left = producer.flush(_TIMEOUT_S)
        if left or failed:
            reason = failed[0].str() if failed else "the broker does not answer"
            raise OnceflowError(f"records can't be written to topic {self.name}: {reason}")

    def records(self, count: int, timeout: str | int = "30 s") -> list[Any]:
        """The first `count` committed records, partition by partition in order, decoded from JSON where that
        is what they are. Waits until so many are there; raises OnceflowError if they are not by then."""
        found = self._values(count, time.monotonic() + duration_ms(timeout, "timeout") / 1000)
        if len(found) < count:
            raise OnceflowError(f"topic {self.name} has {len(found)} records after {timeout}, not {count}")
        return found

    def _values(self, count: int, until_s: float) -> list[Any]:
        defaults = {"fetch.wait.max.ms": 100}
        consumer = Consumer(self._options.assigned_consumer("onceflow-test", "read_committed", defaults, LOG))
        by_partition: dict[int, list[Any]] = {p: [] for p in range(self._partitions)}
        try:
            consumer.assign([TopicPartition(self.name, p, 0) for p in by_partition])
            while (left := count - sum(map(len, by_partition.values()))) > 0 and time.monotonic() < until_s:
                messages: list[Any] = consumer.consume(left, timeout=0.1)
                for message in messages:
                    if message.error() is None:
                        by_partition[message.partition()].append(_decoded(message.value()))
                    elif message.error().code() != KafkaError._PARTITION_EOF:
                        raise OnceflowError(f"topic {self.name} can't be read: {message.error().str()}")
        finally:
            consumer.close()
        return [value for values in by_partition.values() for value in values]


def _as_bytes(record: Any) -> bytes | None:
    if record is None or isinstance(record, bytes):
        return record
    if isinstance(record, str):
        return record.encode()
    if is_record_type(type(record)):
        batch = RecordWriter.of(describe_record(type(record))).write([record])
        (value,) = Json().encoder(batch.schema).encode(batch).to_pylist()
        return bytes(value)
    return json.dumps(record, default=str).encode()


def _decoded(value: bytes | None) -> Any:
    try:
        return None if value is None else json.loads(value)
    except ValueError:
        return value


def unique(stem: str) -> str:
    """A name that no other test has."""
    return f"{stem}-{uuid.uuid4().hex[:12]}"
