"""Kafka to Kafka, the values as they are, exactly once: `--workload passthrough` of benchmarks/compare.py."""

import argparse
import json
from pathlib import Path

from onceflow import Job
from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers = options.bootstrap_servers
    settings = json.loads(options.settings.read_text(encoding="utf-8")) if options.settings else {}
    job = Job("pass-through")
    job.source(
        KafkaSource(bootstrap_servers=servers, topics=[options.input], value=Raw(), librdkafka=settings),
        uid="input",
    ).sink_to(
        KafkaSink(bootstrap_servers=servers, topic=options.output, value=Raw(), librdkafka=settings),
        uid="output",
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pass_through.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--settings", type=Path, help="librdkafka's for a secured listener, as a JSON object")
    return parser.parse_args(arguments)
