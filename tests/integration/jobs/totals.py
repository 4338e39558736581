"""The job under test: purchases per user in tumbling windows, with every knob that a test turns."""

import argparse
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Event:
    user: str
    amount: int
    ts: int


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers, librdkafka = options.bootstrap_servers, security()
    job = Job("totals-under-test")
    events = job.source(
        KafkaSource(
            bootstrap_servers=servers,
            topics=[] if options.pattern else [options.input],
            topic_pattern=options.pattern,
            value=Json(Event),
            until=options.until,
            discovery_interval=options.discovery,
            broker_timeout=options.give_up,
            group_id=options.group,
            librdkafka=librdkafka,
        ),
        watermarks=WatermarkStrategy.bounded_out_of_orderness(
            options.out_of_orderness, event_time="ts", idle_after=options.idle_after
        ),
        uid="events",
    )
    if options.trouble:
        events = events.map(troubled(Path(options.trouble)), uid="trouble")
    windows = events.key_by("user").window(tumbling(options.window))
    if options.late:
        windows = windows.late_to("late")
    totals = windows.aggregate(count=count(), total=sum_("amount"), uid="totals")

    def sink(topic: str) -> KafkaSink:
        return KafkaSink(
            bootstrap_servers=options.sink_servers or servers,
            topic=topic,
            key="user",
            delivery_timeout=options.give_up,
            librdkafka=librdkafka,
            two_phase=options.two_phase,
        )

    if options.late:
        totals.side_output("late").sink_to(sink(options.late), uid="late-output")
    totals.select("user", "window_end", "count", "total").sink_to(sink(options.output), uid="output")
    return job


def security() -> dict[str, str]:
    """librdkafka's settings as JSON come by the environment: secrets have no place on a command line."""
    return dict(json.loads(os.environ.get("TEST_LIBRDKAFKA", "{}")))


def troubled(fuses: Path) -> Callable[[Event], Event]:
    """The user's function: it meets a record of user "trouble" with an error, for ever if the folder
    `fuses` holds `always`, and with a call that never returns if it holds `hang`, or `lock`: a call that
    keeps Python's lock. Else as if a service were away, once for each file: each error takes one away."""

    def check(event: Event) -> Event:
        if event.user == "trouble":
            left = sorted(fuses.glob("*"))
            if left:
                while left[0].name == "hang":
                    pass
                if left[0].name == "lock":
                    re.match(r"(a+)+$", "a" * 64 + "b")
                if left[0].name == "always":
                    raise ValueError("no luck today")
                left[0].unlink()
                raise TimeoutError("no luck today")
        return event

    return check


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument(
        "--sink-servers", help="another broker for the output, so that a test can freeze it alone"
    )
    parser.add_argument("--input", default="none")
    parser.add_argument("--output", required=True)
    parser.add_argument("--late")
    parser.add_argument("--pattern")
    parser.add_argument("--discovery", default="30 s")
    parser.add_argument("--until")
    parser.add_argument("--window", default="500 ms")
    parser.add_argument("--out-of-orderness", default="200 ms")
    parser.add_argument("--idle-after")
    parser.add_argument("--give-up", default="2 min")
    parser.add_argument("--group")
    parser.add_argument("--trouble")
    parser.add_argument("--two-phase", action="store_true")
    return parser.parse_args(arguments)
