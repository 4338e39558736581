"""A rolling reduce from Kafka to Kafka: one result for each record, per key in the order it came."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.sinks.kafka import KafkaSink

pytestmark = pytest.mark.kafka

RECORDS = 3_000
KEYS = 7


@dataclass(frozen=True, slots=True)
class Deposit:
    account: str
    cents: int


def add(so_far: Deposit, deposit: Deposit) -> Deposit:
    return Deposit(so_far.account, so_far.cents + deposit.cents)


def test_each_record_gives_the_balance_after_it(
    broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic("deposits", 2), new_topic("balances", 2)
    deposits = [(f"a{n % KEYS}", n + 1) for n in range(RECORDS)]
    produce(broker, source, deposits)
    job = Job("balances")
    stream = job.source(
        KafkaSource(
            bootstrap_servers=broker.bootstrap_servers, topics=[source], value=Json(Deposit), until="latest"
        ),
        uid="deposits",
    )
    stream.key_by("account").reduce(add, uid="balance").sink_to(
        KafkaSink(broker.bootstrap_servers, target, key="account"), uid="balances"
    )

    result = job.run(str(tmp_path / "checkpoints"), master="threads[2]", checkpoint_interval="100 ms")

    assert result.outcome is Outcome.FINISHED, result
    expected, balance = defaultdict(list), defaultdict(int)
    for account, cents in deposits:
        balance[account] += cents
        expected[account].append(balance[account])
    assert read_by_account(broker, target, RECORDS) == expected


def produce(broker: EmbeddedKafka, topic: str, deposits: list[tuple[str, int]]) -> None:
    """An account's deposits in one partition: their order is what the test is about."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for account, cents in deposits:
        value = json.dumps({"account": account, "cents": cents})
        producer.produce(topic, value, partition=int(account[1:]) % 2)
    assert producer.flush(30) == 0


def read_by_account(broker: EmbeddedKafka, topic: str, count: int) -> dict[str, list[int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "log_level": 0,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found, at_end = defaultdict(list), set()
    while len(at_end) < 2:
        for message in consumer.consume(1_000, 1.0):
            if message.error():
                at_end.add(message.partition())
            else:
                row = json.loads(message.value())
                found[row["account"]].append(row["cents"])
    consumer.close()
    assert sum(map(len, found.values())) == count
    return found
