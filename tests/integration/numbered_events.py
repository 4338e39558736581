"""Events with a key, a number and an event time, on a topic; and a topic by key as the table that it is."""

from __future__ import annotations

import json
import random
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

PARTITIONS = 2
DISORDER_MS = 15


def produced(
    servers: str,
    topic: str,
    rows: int,
    pick: random.Random,
    keys: int,
    are_together: bool = False,
    **more: str,
) -> list[tuple[int, int, int]]:
    """(key, number, event time) of each row, out of order by less than DISORDER_MS. With `are_together` all
    rows of a key are in one partition, in their order. `more`: further fields, alike in all rows."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    made = [(pick.randrange(keys), n, n + pick.randrange(DISORDER_MS)) for n in range(rows)]
    for key, n, ts in made:
        partition = (key if are_together else n) % PARTITIONS
        producer.produce(topic, json.dumps({"key": key, "n": n, "ts": ts, **more}), partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0
    return made


def table_of(servers: str, topic: str) -> tuple[list[dict[str, Any]], int, int]:
    """The last value of each key, but for those that are deleted; how many changes there are, and how many of
    them are deletes."""
    settings = {"group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    table: dict[bytes, bytes | None] = {}
    changes, deletes, at_end = 0, 0, set[int]()
    while len(at_end) < PARTITIONS:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                table[message.key()] = message.value()
                changes += 1
                deletes += message.value() is None
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
    consumer.close()
    return [json.loads(value) for value in table.values() if value is not None], changes, deletes
