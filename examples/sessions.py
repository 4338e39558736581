"""Visits of a website: views of one user without a gap of half an hour are one visit.

onceflow run examples/sessions.py --checkpoint-dir /tmp/visits -- --bootstrap-servers localhost:9092 \
    --input views --output visits
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, ListState, Timer, WatermarkStrategy
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

GAP_MS = 30 * 60 * 1_000


@dataclass(frozen=True, slots=True)
class View:
    user: str
    page: str
    ts: int  # event time, ms


@dataclass(frozen=True, slots=True)
class Visit:
    user: str
    start: int
    end: int
    views: int


class Visits(KeyedProcess[str, View, Visit]):
    """Keeps the times of the views until event time says that a visit is over; only then looks at them."""

    times = ListState("times", int)

    def process(self, view: View, ctx: Ctx) -> None:
        self.times.add(view.ts)
        ctx.timers.event_time(view.ts + GAP_MS)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Visit]:
        # No view before the timer's time is missing now, whatever the order in which they came.
        times = sorted(self.times.get())
        while times:
            views = 1
            while views < len(times) and times[views] - times[views - 1] < GAP_MS:
                views += 1
            if times[views - 1] + GAP_MS > fired.time:
                break  # this visit may go on
            yield Visit(ctx.key, times[0], times[views - 1], views)
            del times[:views]
        self.times.update(times)


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers = options.bootstrap_servers
    job = Job("sessions")
    views = job.source(
        KafkaSource(bootstrap_servers=servers, topics=[options.input], value=Json(View), until=options.until),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("1 min", event_time="ts", idle_after="1 min"),
        uid="views",
    )
    visits = views.key_by("user").process(Visits(), uid="visits-by-user")
    visits.sink_to(KafkaSink(bootstrap_servers=servers, topic=options.output, key="user"), uid="visits")
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sessions.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", default="views", help="topic with views")
    parser.add_argument("--output", default="visits", help="topic for visits")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
