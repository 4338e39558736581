"""From Kafka to Kafka. `onceflow run kafka_to_kafka.py --checkpoint-dir DIR` runs it."""

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.connectors.formats import Json, Text
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    ts: int


job = Job("totals")
purchases = job.source(
    KafkaSource(
        bootstrap_servers="localhost:9092",
        topics=["purchases"],
        value=Json(Purchase),
        key=Text("shop"),
        start="earliest",
        group_id="totals",  # for lag monitors
        errors_tolerance="all",
        dead_letter_topic="bad-purchases",
        librdkafka={"security.protocol": "plaintext"},
    ),
    watermarks=WatermarkStrategy.bounded_out_of_orderness(
        "2 s", event_time="ts", idle_after="30 s"
    ),
    uid="purchases",
)
totals = (
    purchases.key_by("shop", "user")
    .window(tumbling("10 s"))
    .aggregate(count=count(), total=sum_("amount"))
)
totals.sink_to(
    KafkaSink(bootstrap_servers="localhost:9092", topic="totals", key="user"),
    uid="totals",
)
