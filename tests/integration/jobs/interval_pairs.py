"""Joins two topics of events with the same key that are at most so far apart, with those without a partner.

onceflow run interval_pairs.py ... -- SERVERS LEFT_TOPIC RIGHT_TOPIC OUTPUT_TOPIC WITHIN RATE
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, col
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True)
class Event:
    key: int
    n: int
    ts: int
    text: str


def build(arguments: list[str]) -> Job:
    servers, left, right, output, within, rate = arguments
    job, times = Job("pairs"), WatermarkStrategy.bounded_out_of_orderness("20 ms", event_time="ts")
    sides = [
        job.source(
            KafkaSource(bootstrap_servers=servers, topics=[topic], value=Json(Event), until="latest"),
            watermarks=times,
            uid=uid,
            rate_limit=rate,
        ).key_by("key")
        for uid, topic in (("left", left), ("right", right))
    ]
    pairs = sides[0].interval_join(sides[1], f"-{within}", within, how="full", uid="join")
    rows = pairs.select("key", "n", "n_right", bytes=col("text").str.len_bytes())
    rows.sink_to(KafkaSink(bootstrap_servers=servers, topic=output), uid="pairs")
    return job
