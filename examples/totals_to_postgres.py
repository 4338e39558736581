"""Purchases in Avro, from Kafka, to totals per user and window in a table of PostgreSQL, exactly once.

PGPASSWORD=... onceflow run examples/totals_to_postgres.py --checkpoint-dir /tmp/totals \
    -- --bootstrap-servers localhost:9092 --registry http://localhost:8081 --input purchases \
    --dead-letters purchases-bad --postgres postgresql://onceflow@localhost/shop --table totals
"""

import argparse
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Avro
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.postgres import PostgresSink


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    amount: int  # cents
    ts: int  # event time, ms


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    job = Job("totals-to-postgres")
    purchases = job.source(
        KafkaSource(
            bootstrap_servers=options.bootstrap_servers,
            topics=[options.input],
            value=Avro(Purchase, registry=options.registry),
            errors_tolerance="all",
            dead_letter_topic=options.dead_letters,
        ),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts", idle_after="30 s"),
        uid="purchases",
    )
    totals = (
        purchases.key_by("user")
        .window(tumbling("10 s"))
        .aggregate(count=count(), total=sum_("amount"), uid="per-user")
        .select("user", "window_end", "count", "total")
    )
    key = ("user", "window_end")
    totals.sink_to(PostgresSink(options.postgres, options.table, key=key, create_table=True), uid="totals")
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="totals_to_postgres.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--registry", default="http://localhost:8081", help="URL of the schema registry")
    parser.add_argument("--input", default="purchases", help="topic with purchases")
    parser.add_argument("--dead-letters", default="purchases-bad", help="topic for what can't be read")
    parser.add_argument(
        "--postgres", default="postgresql://onceflow@localhost/shop", help="URL of the database"
    )
    parser.add_argument("--table", default="totals", help="made if it is not there")
    return parser.parse_args(arguments)
