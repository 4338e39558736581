"""The main job with Avro in and out: examples/windowed_totals.py, but for the format.

The schemas' ids come from a fixed mapping in the place of a registry: a registry is asked once per schema
and process, which no figure would show.
"""

import argparse
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Avro
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

PURCHASE = {
    "type": "record",
    "name": "Purchase",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "type", "type": "string"},
        {"name": "amount", "type": "long"},
        {"name": "ts", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "ok", "type": "boolean"},
    ],
}
TOTAL = {
    "type": "record",
    "name": "Total",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "window_end", "type": "long"},
        {"name": "count", "type": "long"},
        {"name": "total", "type": "long"},
    ],
}
SCHEMAS = {1: PURCHASE, 2: TOTAL}


@dataclass(frozen=True, slots=True)
class Event:
    user: str
    type: str
    amount: int  # cents
    ts: int  # event time, ms
    item: str
    ok: bool


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    job = Job("avro-totals")
    events = job.source(
        KafkaSource(
            bootstrap_servers=options.bootstrap_servers,
            topics=[options.input],
            value=Avro(Event, registry=SCHEMAS),
            until=options.until,
        ),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts", idle_after="5 s"),
        uid="events",
    )
    (
        events.key_by("user")
        .window(tumbling("10 s"))
        .aggregate(count=count(), total=sum_("amount"), uid="totals-per-window")
        .select("user", "window_end", "count", "total")
        .sink_to(
            KafkaSink(
                bootstrap_servers=options.bootstrap_servers,
                topic=options.output,
                key="user",
                value=Avro(TOTAL, registry=SCHEMAS),
            ),
            uid="totals",
        )
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="avro_totals.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--until", choices=["latest"])
    return parser.parse_args(arguments)
