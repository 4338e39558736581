"""The main job with a Python function for each record: examples/windowed_totals.py, but for the map.

PyFlink's main job runs such a function, too: the two stand side by side in the comparison.
"""

import argparse
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Event:
    user: str
    type: str
    amount: int  # cents
    ts: int  # event time, ms
    item: str
    ok: bool


@dataclass(slots=True)
class Purchase:
    user: str
    amount: int


def purchase(event: Event) -> Purchase:
    return Purchase(event.user, event.amount)


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    job = Job("mapped-totals")
    events = job.source(
        KafkaSource(bootstrap_servers=options.bootstrap_servers, topics=[options.input], value=Json(Event)),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts", idle_after="5 s"),
        uid="events",
    )
    (
        events.map(purchase)
        .key_by("user")
        .window(tumbling("10 s"))
        .aggregate(count=count(), total=sum_("amount"), uid="totals-per-window")
        .select("user", "window_end", "count", "total")
        .sink_to(
            KafkaSink(bootstrap_servers=options.bootstrap_servers, topic=options.output, key="user"),
            uid="totals",
        )
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mapped_totals.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    return parser.parse_args(arguments)
