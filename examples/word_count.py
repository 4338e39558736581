"""Words counted in tumbling windows by the time of their message, from Kafka to Kafka, exactly once.

onceflow run examples/word_count.py --checkpoint-dir /tmp/words \
    -- --bootstrap-servers localhost:9092 --input lines --output counts --until latest
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    ts: int  # event time, ms


@dataclass(frozen=True, slots=True)
class Word:
    word: str


def split(line: Line) -> Iterator[Word]:
    for word in re.findall(r"\w+", line.text.lower()):
        yield Word(word)


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    job = Job("word-count")
    lines = job.source(
        KafkaSource(
            bootstrap_servers=options.bootstrap_servers,
            topics=[options.input],
            value=Json(Line),
            until=options.until,
        ),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts", idle_after="5 s"),
        uid="lines",
    )
    (
        lines.flat_map(split)
        .key_by("word")
        .window(tumbling(options.window))
        .aggregate(count=count(), uid="words-per-window")
        .sink_to(
            KafkaSink(bootstrap_servers=options.bootstrap_servers, topic=options.output, key="word"),
            uid="counts",
        )
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="word_count.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", required=True, help="topic with lines of text")
    parser.add_argument("--output", required=True, help="topic for counts")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    parser.add_argument("--window", default="10 s")
    return parser.parse_args(arguments)
