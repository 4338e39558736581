"""Fire alerts: a sensor that jumps by 20 degrees and is still hot five seconds later.

onceflow run examples/fire_detection.py --checkpoint-dir /tmp/fires \
    -- --bootstrap-servers localhost:9092 --input readings --output alerts --until latest
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, Timer, ValueState, WatermarkStrategy
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

JUMP = 20.0  # degrees from one reading to the next
CONFIRM_AFTER_MS = 5_000


@dataclass(frozen=True, slots=True)
class Reading:
    sensor: str
    celsius: float
    ts: int  # event time, ms


@dataclass(frozen=True, slots=True)
class Fire:
    sensor: str
    since: int  # ms
    celsius: float


class FireAlert(KeyedProcess[str, Reading, Fire]):
    """Of each sensor: its last reading, and since when and above what it is suspiciously hot."""

    last = ValueState("last", float)
    hot_since = ValueState("hot_since", int)
    limit = ValueState("limit", float)

    def process(self, reading: Reading, ctx: Ctx) -> None:
        previous, limit = self.last.get(), self.limit.get()
        self.last.set(reading.celsius)
        if limit is not None and reading.celsius < limit:  # a false alarm: it has cooled down
            self.forget(ctx)
        elif limit is None and previous is not None and reading.celsius - previous >= JUMP:
            self.hot_since.set(reading.ts)
            self.limit.set(previous + JUMP)
            ctx.timers.event_time(reading.ts + CONFIRM_AFTER_MS)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Fire]:
        celsius = self.last.get()
        assert celsius is not None, "the timer was set by a reading"
        yield Fire(ctx.key, fired.time - CONFIRM_AFTER_MS, celsius)
        self.forget(ctx)

    def forget(self, ctx: Ctx) -> None:
        since = self.hot_since.get()
        if since is not None:
            ctx.timers.delete_event_time(since + CONFIRM_AFTER_MS)
        self.hot_since.clear()
        self.limit.clear()


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    job = Job("fire-detection")
    readings = job.source(
        KafkaSource(
            bootstrap_servers=options.bootstrap_servers,
            topics=[options.input],
            value=Json(Reading),
            until=options.until,
        ),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts", idle_after="5 s"),
        uid="readings",
    )
    (
        readings.key_by("sensor")
        .process(FireAlert(), uid="fire-alert")
        .sink_to(
            KafkaSink(bootstrap_servers=options.bootstrap_servers, topic=options.output, key="sensor"),
            uid="alerts",
        )
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fire_detection.py", description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", required=True, help="topic with readings")
    parser.add_argument("--output", required=True, help="topic for alerts")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
