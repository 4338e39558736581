"""Purchases per user in tumbling windows, Avro in and out through a schema registry."""

import argparse
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Avro
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    amount: int
    ts: int
    shop: str = "none"


def build(arguments: list[str]) -> Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--registry", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--dead-letters", required=True)
    options = parser.parse_args(arguments)
    job = Job("avro-totals-under-test")
    purchases = job.source(
        KafkaSource(
            bootstrap_servers=options.bootstrap_servers,
            topics=[options.input],
            value=Avro(Purchase, registry=options.registry),
            until="latest",
            errors_tolerance="all",
            dead_letter_topic=options.dead_letters,
        ),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("200 ms", event_time="ts"),
        uid="purchases",
    )
    (
        purchases.key_by("user", "shop")
        .window(tumbling("1 s"))
        .aggregate(count=count(), total=sum_("amount"), uid="totals")
        .select("user", "shop", "window_end", "count", "total")
        .sink_to(
            KafkaSink(
                bootstrap_servers=options.bootstrap_servers,
                topic=options.output,
                key="user",
                value=Avro(registry=options.registry, name="shop.Total"),
            ),
            uid="output",
        )
    )
    return job
