"""Join orders with payments by the order's id, within an hour. Unpaid orders go to a topic of their own.

onceflow run examples/join.py --checkpoint-dir /tmp/join -- --bootstrap-servers localhost:9092 \
    --orders orders --payments payments --paid paid --unpaid unpaid
"""

import argparse
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, col
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Order:
    order_id: str
    item: str
    ts: int  # event time, ms


@dataclass(frozen=True, slots=True)
class Payment:
    order_id: str
    cents: int
    ts: int


@dataclass(frozen=True, slots=True)
class Paid:
    order_id: str
    item: str
    cents: int
    waited_ms: int


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers, until = options.bootstrap_servers, options.until
    job = Job("join")
    times = WatermarkStrategy.bounded_out_of_orderness("5 s", event_time="ts", idle_after="1 min")
    orders = KafkaSource(bootstrap_servers=servers, topics=[options.orders], value=Json(Order), until=until)
    payments = KafkaSource(
        bootstrap_servers=servers, topics=[options.payments], value=Json(Payment), until=until
    )
    by_order = job.source(orders, watermarks=times, uid="orders").key_by("order_id")
    joined = by_order.interval_join(
        job.source(payments, watermarks=times, uid="payments").key_by("order_id"),
        lower="-1 h",
        upper="1 h",
        how="left",
        uid="join",
    )
    paid = joined.filter(col("cents").is_not_null()).select(
        "order_id", "item", "cents", waited_ms=col("ts_right") - col("ts")
    )
    unpaid = joined.filter(col("cents").is_null()).select("order_id", "item", "ts")
    paid.sink_to(KafkaSink(bootstrap_servers=servers, topic=options.paid, key="order_id"), uid="paid")
    unpaid.sink_to(KafkaSink(bootstrap_servers=servers, topic=options.unpaid, key="order_id"), uid="unpaid")
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="join.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--orders", default="orders", help="topic with orders")
    parser.add_argument("--payments", default="payments", help="topic with payments")
    parser.add_argument("--paid", default="paid", help="topic for what was paid in time")
    parser.add_argument("--unpaid", default="unpaid", help="topic for what was not")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
