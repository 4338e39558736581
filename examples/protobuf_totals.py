"""Purchases per user in tumbling windows, both topics in Protobuf, with a schema registry.

protoc --include_imports --descriptor_set_out=shop.binpb examples/shop.proto

onceflow run examples/protobuf_totals.py --checkpoint-dir /tmp/totals \
    -- --bootstrap-servers localhost:9092 --registry http://localhost:8081 \
    --input purchases --output totals --dead-letters purchases-bad
"""

import argparse

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Protobuf
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    job = Job("protobuf-totals")
    source = KafkaSource(
        bootstrap_servers=options.bootstrap_servers,
        topics=[options.input],
        value=Protobuf(options.messages, name="shop.Purchase", registry=options.registry),
        errors_tolerance="all",
        dead_letter_topic=options.dead_letters,
        until=options.until,
    )
    sink = KafkaSink(
        bootstrap_servers=options.bootstrap_servers,
        topic=options.output,
        key="user",
        value=Protobuf(options.messages, name="shop.Total", registry=options.registry),
    )
    times = WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts", idle_after="30 s")
    (
        job.source(source, watermarks=times, uid="purchases")
        .key_by("user")
        .window(tumbling(options.window))
        .aggregate(count=count(), total=sum_("amount"), uid="per-user")
        .select("user", "window_end", "count", "total")  # the fields of shop.Total
        .sink_to(sink, uid="totals")
    )
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="protobuf_totals.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--registry", default="http://localhost:8081", help="URL of the schema registry")
    parser.add_argument("--messages", default="shop.binpb", help="descriptor set with the messages")
    parser.add_argument("--input", default="purchases", help="topic with purchases")
    parser.add_argument("--output", default="totals", help="topic for totals")
    parser.add_argument("--dead-letters", default="purchases-bad", help="topic for what can't be read")
    parser.add_argument("--window", default="10 s")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
