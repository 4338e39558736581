"""The workloads in PyFlink's DataStream API. Run by the peer's own Python: nothing of onceflow is here."""

import json
import sys
from typing import Any

from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.common.time import Time
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

EVENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):  # type: ignore[no-untyped-def]
        return value[2]


class Totals(AggregateFunction):
    def create_accumulator(self):  # type: ignore[no-untyped-def]
        return 0, 0

    def add(self, value, sums):  # type: ignore[no-untyped-def]
        return sums[0] + 1, sums[1] + value[1]

    def get_result(self, sums):  # type: ignore[no-untyped-def]
        return sums

    def merge(self, one, other):  # type: ignore[no-untyped-def]
        return one[0] + other[0], one[1] + other[1]


class ToRow(ProcessWindowFunction):
    def process(self, key, context, elements):  # type: ignore[no-untyped-def]
        ((count, total),) = elements
        yield json.dumps({"user": key, "window_end": context.window().end, "count": count, "total": total})


def event(text):  # type: ignore[no-untyped-def]
    value = json.loads(text)
    return value["user"], value["amount"], value["ts"]


def one_cent_more(text):  # type: ignore[no-untyped-def]
    value = json.loads(text)
    value["amount"] += 1
    return json.dumps(value)


def main(workload: str, servers: str, source: str, target: str, folder: str, jars: str, python: str) -> None:
    settings = Configuration()
    settings.set_string("execution.checkpointing.interval", "1 s")
    settings.set_string("execution.checkpointing.dir", f"file://{folder}/checkpoints")
    settings.set_string("python.execution-mode", "process")
    settings.set_string("python.executable", python)
    settings.set_string("pipeline.jars", jars)
    settings.set_string("python.fn-execution.bundle.size", "10000")
    settings.set_string("python.state.cache-size", "200000")
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(4 if workload == "main" else 1)
    records = env.from_source(
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(source)
        .set_group_id(f"bench-{target}")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build(),
        WatermarkStrategy.no_watermarks(),
        "purchases",
    )
    rows = totals(records) if workload == "main" else records.map(one_cent_more, Types.STRING())
    values = KafkaRecordSerializationSchema.builder().set_topic(target)
    rows.sink_to(
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(target)
        .set_property("transaction.timeout.ms", "600000")
        .set_record_serializer(values.set_value_serialization_schema(SimpleStringSchema()).build())
        .build()
    )
    env.execute("bench")


def totals(records: Any) -> Any:
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    return (
        records.map(event, EVENT)
        .assign_timestamps_and_watermarks(watermarks.with_timestamp_assigner(EventTime()))
        .key_by(lambda value: value[0], Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .aggregate(
            Totals(),
            window_function=ToRow(),
            accumulator_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
            output_type=Types.STRING(),
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
