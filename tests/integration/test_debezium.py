"""Changes of a table, as Debezium writes them to Kafka, into a table of PostgreSQL that follows them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Producer

from onceflow import Job
from onceflow.connectors.formats import Debezium, Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.errors import GraphError
from onceflow.sinks.postgres import PostgresSink
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]


@dataclass(frozen=True)
class Order:
    id: int
    amount: int
    state: str


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


Changes = list[tuple[int, dict[str, Any] | None]]


def changes(count: int, chance: random.Random) -> tuple[Changes, list[Any]]:
    """Changes of a table, each with its key, and the table that they lead to."""
    table: dict[int, dict[str, Any]] = {}
    made: Changes = []
    for i in range(count):
        key = chance.randrange(40)
        before = table.get(key)
        after = {"id": key, "amount": i, "state": chance.choice(["open", "paid"])}
        op = ("r" if i < 20 else "c") if before is None else chance.choice("ud")
        table.pop(key, None)
        if op != "d":
            table[key] = after
        source = {"connector": "postgresql", "ts_ms": i, "schema": "public", "table": "orders"}
        envelope = {
            "before": before, "after": None if op == "d" else after, "op": op, "ts_ms": i, "source": source
        }  # fmt: skip
        made.append((key, envelope if chance.random() < 0.5 else {"schema": {}, "payload": envelope}))
        if op == "d":
            made.append((key, None))
    return made, sorted((r["id"], r["amount"], r["state"]) for r in table.values())


def produce(servers: str, topic: str, made: Changes) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "enable.idempotence": True})
    for key, envelope in made:
        text = None if envelope is None else json.dumps(envelope)
        producer.produce(topic, text, str(key), partition=key % 2)
    assert producer.flush(60) == 0


def orders(broker: Any, topic: str, **options: Any) -> KafkaSource:
    return KafkaSource(
        bootstrap_servers=broker.bootstrap_servers,
        topics=[topic],
        value=Debezium(Json(Order)),
        until="latest",
        **options,
    )


def test_a_table_follows_the_changes_of_another(broker: Any, new_topic: Any, server: PostgresServer) -> None:
    made, table = changes(1_000, random.Random(5))
    topic = new_topic("orders", 2)
    produce(broker.bootstrap_servers, topic, made)
    job = Job("copy")
    rows = job.source(orders(broker, topic), uid="changes")
    rows.sink_to(PostgresSink(server.url, "copied", key="id", create_table=True), uid="copied")
    paid = rows.filter(pl.col("state") == "paid")
    paid.sink_to(PostgresSink(server.url, "paid", key="id", create_table=True), uid="paid")
    job.run(master="threads[2]")
    found = server.rows("SELECT row_to_json(copied) FROM copied ORDER BY id")
    assert [(r["id"], r["amount"], r["state"]) for r in found] == table
    found = server.rows("SELECT row_to_json(paid) FROM paid ORDER BY id")
    assert [(r["id"], r["amount"], r["state"]) for r in found] == [r for r in table if r[2] == "paid"]


def test_a_truncated_table_is_told_as_a_dead_letter(
    broker: Any, new_topic: Any, server: PostgresServer, engine: Any
) -> None:
    topic, dead = new_topic("orders", 2), new_topic("dead", 1)
    row = {"id": 2, "amount": 1, "state": "open"}
    truncated = {"before": None, "after": None, "op": "t"}
    produce(broker.bootstrap_servers, topic, [(0, truncated), (2, {"after": row, "op": "c"})])
    job = Job("truncated")
    source = orders(broker, topic, errors_tolerance="all", dead_letter_topic=dead)
    job.source(source).sink_to(PostgresSink(server.url, "kept", key="id", create_table=True))
    job.run(master="threads[1]")
    assert server.rows("SELECT id FROM kept") == [2]
    assert engine.read_topic(broker.bootstrap_servers, dead) == [json.dumps(truncated).encode()]


def test_what_would_take_a_delete_for_a_row_is_refused(broker: Any, new_topic: Any) -> None:
    job = Job("appended")
    job.source(orders(broker, new_topic("orders", 1))).sink_to(PostgresSink("postgresql://x", "t"))
    with pytest.raises(GraphError, match="the updates and deletes"):
        job.build()
