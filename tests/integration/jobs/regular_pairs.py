"""Joins two topics of events with the same key, whenever they come, with those without a partner; and keeps
the result in a topic by key, as a table.

onceflow run regular_pairs.py ... -- SERVERS LEFT_TOPIC RIGHT_TOPIC OUTPUT_TOPIC
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from onceflow import Job, WatermarkStrategy, col
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True)
class Event:
    key: int
    n: int
    ts: int


def build(arguments: list[str]) -> Job:
    servers, left, right, output = arguments
    job, times = Job("pairs"), WatermarkStrategy.bounded_out_of_orderness("20 ms", event_time="ts")
    sides = [
        job.source(
            KafkaSource(bootstrap_servers=servers, topics=[topic], value=Json(Event), until="latest"),
            watermarks=times,
            uid=uid,
            rate_limit="1500/s",
        ).key_by("key")
        for uid, topic in (("left", left), ("right", right))
    ]
    pairs = sides[0].join(sides[1], how="full", uid="join")
    named = pl.concat_str([col("n").fill_null(-1), col("n_right").fill_null(-1)], separator=" ")
    rows = pairs.select("key", "n", "n_right", pair=named)
    rows.sink_to(KafkaSink(bootstrap_servers=servers, topic=output, key="pair", upsert=True), uid="pairs")
    return job
