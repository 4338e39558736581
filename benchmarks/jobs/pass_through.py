"""Kafka to Kafka, the values as they are, exactly once: `--workload passthrough` of benchmarks/compare.py."""

import argparse

from onceflow import Job
from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    job = Job("pass-through")
    job.source(
        KafkaSource(bootstrap_servers=options.bootstrap_servers, topics=[options.input], value=Raw()),
        uid="input",
    ).sink_to(
        KafkaSink(bootstrap_servers=options.bootstrap_servers, topic=options.output, value=Raw()),
        uid="output",
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pass_through.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    return parser.parse_args(arguments)
