"""The main job, examples/windowed_totals.py, on a listener that wants a password or encrypts.

    onceflow run benchmarks/jobs/secured_totals.py -- --settings FILE --input events --output totals ...

The file has librdkafka's settings as one JSON object; bootstrap.servers, if it is among them, counts.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Event:
    user: str
    type: str
    amount: int
    ts: int
    item: str
    ok: bool


def build(arguments: list[str]) -> Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", type=Path, required=True)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--until", choices=["latest"])
    options = parser.parse_args(arguments)
    settings = json.loads(options.settings.read_text(encoding="utf-8"))
    servers = settings.pop("bootstrap.servers", options.bootstrap_servers)
    job = Job("windowed-totals")
    events = job.source(
        KafkaSource(
            bootstrap_servers=servers,
            topics=[options.input],
            value=Json(Event),
            until=options.until,
            librdkafka=settings,
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
            KafkaSink(bootstrap_servers=servers, topic=options.output, key="user", librdkafka=settings),
            uid="totals",
        )
    )
    return job
