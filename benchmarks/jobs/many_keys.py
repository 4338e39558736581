"""A job with as many keys in state as its input has users, and output all the time (benchmarks/recovery.py).

Sums per user in windows of a day stay in state; each record also goes out as it is.
"""

import argparse
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    amount: int
    ts: int  # event time, ms


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers = options.bootstrap_servers
    job = Job("many-keys")
    purchases = job.source(
        KafkaSource(bootstrap_servers=servers, topics=[options.input], value=Json(Purchase)),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts"),
        uid="purchases",
    )
    (
        purchases.key_by("user")
        .window(tumbling("1 d"))
        .aggregate(count=count(), total=sum_("amount"), uid="totals")
        .select("user", "window_end", "count", "total")
        .sink_to(KafkaSink(bootstrap_servers=servers, topic=options.totals, key="user"), uid="days")
    )
    purchases.sink_to(KafkaSink(bootstrap_servers=servers, topic=options.output), uid="copies")
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="many_keys.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--totals", required=True)
    parser.add_argument("--output", required=True)
    return parser.parse_args(arguments)
