"""Purchases per user in tumbling windows, from Kafka to Kafka, exactly once.

onceflow run examples/windowed_totals.py --master 'local[2]' --parallelism 2 \
    --checkpoint-dir /tmp/totals --checkpoint-interval "1 s" \
    -- --bootstrap-servers localhost:9092 --input events --output totals --until latest
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


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    job = Job("windowed-totals")
    events = job.source(
        KafkaSource(
            bootstrap_servers=options.bootstrap_servers,
            topics=[options.input],
            value=Json(Event),
            until=options.until,
        ),
        watermarks=WatermarkStrategy.bounded_out_of_orderness(
            options.out_of_orderness,
            event_time="ts",
            idle_after="5 s",  # a partition without traffic does not hold back the others
        ),
        uid="events",
    )
    (
        events.key_by("user")
        .window(tumbling(options.window))
        .aggregate(count=count(), total=sum_("amount"), uid="totals-per-window")
        .select("user", "window_end", "count", "total")
        .sink_to(
            KafkaSink(bootstrap_servers=options.bootstrap_servers, topic=options.output, key="user"),
            uid="totals",
        )
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="windowed_totals.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", required=True, help="topic with events")
    parser.add_argument("--output", required=True, help="topic for totals")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    parser.add_argument("--out-of-orderness", default="2 s")
    parser.add_argument("--window", default="10 s")
    return parser.parse_args(arguments)
