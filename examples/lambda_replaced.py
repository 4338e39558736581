"""One job where a lambda architecture has two: years of purchases, of which a table has all, and the stream.

Spark sums up the table once, and writes the sums as the state of a job; the job reads the topic from the very
record behind the table's last one. No code is there twice, and nothing is counted twice or left out.

python examples/lambda_replaced.py purchases.parquet /tmp/summed    # prints the offsets
onceflow run examples/lambda_replaced.py --checkpoint-dir /tmp/spent --from /tmp/summed \
    --reset-offsets 'purchases={"purchases": {"0": 4711, "1": 4693}}' -- --input purchases --output spent
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onceflow
from onceflow import Ctx, Job, KeyedProcess, ValueState
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    cents: int


@dataclass(frozen=True, slots=True)
class Sum:
    purchases: int
    cents: int


@dataclass(frozen=True, slots=True)
class Spent:
    user: str
    purchases: int
    cents: int


class Spending(KeyedProcess[str, Purchase, Spent]):
    """All that a user has ever spent, with each purchase."""

    spent = ValueState("spent", Sum)

    def process(self, record: Purchase, ctx: Ctx) -> Iterator[Spent]:
        before = self.spent.get(Sum(0, 0))
        now = Sum(before.purchases + 1, before.cents + record.cents)
        self.spent.set(now)
        yield Spent(record.user, now.purchases, now.cents)


def sum_up(spark: "SparkSession", table: str, savepoint: str) -> dict[str, dict[str, int]]:
    """Make a savepoint of the table (user, cents, and where each was in Kafka: topic, partition, offset).
    Returns the offsets behind it, by topic and partition."""
    from pyspark.sql import functions as f

    onceflow.register(spark)
    purchases = spark.read.parquet(table)
    sums = purchases.groupBy("user").agg(f.count("*").alias("purchases"), f.sum("cents").alias("cents"))
    written = sums.write.format("onceflow-state").mode("append")
    written.options(operator="spending", state="spent", key_columns="user").save(savepoint)
    ends = purchases.groupBy("topic", "partition").agg((f.max("offset") + 1).alias("next")).collect()
    return {
        topic: {str(row.partition): row.next for row in ends if row.topic == topic}
        for topic in sorted({row.topic for row in ends})
    }


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers = options.bootstrap_servers
    job = Job("lambda-replaced")
    purchases = job.source(
        KafkaSource(
            bootstrap_servers=servers, topics=[options.input], value=Json(Purchase), until=options.until
        ),
        uid="purchases",
    )
    spent = purchases.key_by("user").process(Spending(), uid="spending")
    spent.sink_to(KafkaSink(bootstrap_servers=servers, topic=options.output, key="user"), uid="spent")
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="lambda_replaced.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", default="purchases", help="topic with purchases")
    parser.add_argument("--output", default="spent", help="topic for what each user has spent")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    print(json.dumps(sum_up(SparkSession.builder.getOrCreate(), *sys.argv[1:])))
