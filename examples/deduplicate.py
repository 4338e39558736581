"""Let each click through once: copies with the same id are dropped for a day of event time.

onceflow run examples/deduplicate.py --checkpoint-dir /tmp/clicks -- --bootstrap-servers localhost:9092 \
    --input clicks --output clicks-once
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, ValueState, WatermarkStrategy
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Click:
    click_id: str
    page: str
    ts: int  # event time, ms


class Once(KeyedProcess[str, Click, Click]):
    """Passes the first click of an id, and again one that happened a day or more after that."""

    has_passed = ValueState("has_passed", bool, ttl="1 d")

    def process(self, click: Click, ctx: Ctx) -> Iterator[Click]:
        if not self.has_passed.get():
            self.has_passed.set(True)
            yield click


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers = options.bootstrap_servers
    job = Job("deduplicate")
    clicks = job.source(
        KafkaSource(
            bootstrap_servers=servers, topics=[options.input], value=Json(Click), until=options.until
        ),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("1 min", event_time="ts", idle_after="1 min"),
        uid="clicks",
    )
    once = clicks.key_by("click_id").process(Once(), uid="once")
    once.sink_to(
        KafkaSink(bootstrap_servers=servers, topic=options.output, key="click_id"), uid="clicks-once"
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="deduplicate.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", default="clicks", help="topic with clicks")
    parser.add_argument("--output", default="clicks-once", help="topic for each click once")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
