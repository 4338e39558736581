"""Fire alerts: a sensor that jumps by 20 degrees and is still hot five seconds later.

onceflow run examples/fire_detection.py --checkpoint-dir /tmp/fires \
    -- --bootstrap-servers localhost:9092 --input readings --output alerts --until latest
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, MapState, Timer, ValueState, WatermarkStrategy
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
    """Looks at a sensor's readings in the order of event time, whatever the order in which they come.

    A reading waits until the watermark has passed it. So the alerts are the same on live data, on a
    backlog and after a restart.
    """

    waiting = MapState("waiting", int, float)  # event time -> degrees
    last = ValueState("last", float)
    hot_since = ValueState("hot_since", int)
    limit = ValueState("limit", float)  # below it, it was a false alarm

    def process(self, reading: Reading, ctx: Ctx) -> None:
        self.waiting.put(reading.ts, reading.celsius)
        ctx.timers.event_time(reading.ts)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Fire]:
        celsius = self.waiting.get(fired.time)
        if celsius is not None:
            self.waiting.remove(fired.time)
            self.look_at(celsius, fired.time, ctx)
        since, last = self.hot_since.get(), self.last.get()
        if since is not None and last is not None and fired.time >= since + CONFIRM_AFTER_MS:
            yield Fire(ctx.key, since, last)
            self.forget_alarm()

    def look_at(self, celsius: float, time: int, ctx: Ctx) -> None:
        previous, limit = self.last.get(), self.limit.get()
        self.last.set(celsius)
        if limit is not None:
            if celsius < limit:
                self.forget_alarm()
        elif previous is not None and celsius - previous >= JUMP:
            self.hot_since.set(time)
            self.limit.set(previous + JUMP)
            ctx.timers.event_time(time + CONFIRM_AFTER_MS)

    def forget_alarm(self) -> None:
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
    parser = argparse.ArgumentParser(prog="fire_detection.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", required=True, help="topic with readings")
    parser.add_argument("--output", required=True, help="topic for alerts")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
