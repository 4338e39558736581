"""Purchases per user in tumbling windows, from Kafka to Kafka, exactly once, by Spark's own operators.

python examples/spark_windowed_totals.py --bootstrap-servers localhost:9092 --input events --output totals \
    --checkpoint /tmp/totals --staging /tmp/totals-staging --available-now

Kill it at any moment and run the same command again: it goes on, and no row is missing or doubled.
"""

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import onceflow


def read(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    reader = (
        spark.readStream.format("onceflow-kafka")
        .option("bootstrap_servers", options.bootstrap_servers)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .option("format", "json")
        .schema("user STRING, amount BIGINT, ts BIGINT")
    )
    if options.max_offsets_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    return reader.load()


def totals(events: DataFrame, options: argparse.Namespace) -> DataFrame:
    return (
        events.withColumn("at", f.timestamp_millis("ts"))
        .withWatermark("at", options.out_of_orderness)
        .groupBy("user", f.window("at", options.window))
        .agg(f.count("*").alias("count"), f.sum("amount").alias("total"))
        .select("user", f.unix_millis("window.end").alias("window_end"), "count", "total")
    )


def main(options: argparse.Namespace) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.appName("windowed-totals")
        .master(options.master)
        .config("spark.sql.shuffle.partitions", options.shuffle_partitions)
        .config("spark.ui.enabled", "false")
        .config("spark.python.daemon.module", "onceflow.structured_streaming.daemon")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    onceflow.register(spark)
    writer = (
        totals(read(spark, options), options)
        .writeStream.format("onceflow-kafka")
        .queryName("windowed-totals")
        .option("bootstrap_servers", options.bootstrap_servers)
        .option("topic", options.output)
        .option("uid", f"windowed-totals-{options.output}")  # one for each query and its checkpoint
        .option("format", "json")
        .option("key", "user")
        .option("staging", options.staging)
        .option("checkpointLocation", options.checkpoint)
    )
    writer = writer.trigger(availableNow=True) if options.available_now else writer
    writer.start().awaitTermination()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="spark_windowed_totals.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--input", required=True, help="topic with events")
    parser.add_argument("--output", required=True, help="topic for totals")
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint")
    parser.add_argument("--staging", required=True, help="folder that the driver and all executors see")
    parser.add_argument("--max-offsets-per-trigger", type=int, help="the most that one batch reads")
    parser.add_argument("--available-now", action="store_true", help="stop at what is there now; else run on")
    parser.add_argument("--out-of-orderness", default="2 seconds")
    parser.add_argument("--window", default="10 seconds")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--shuffle-partitions", type=int, default=2)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(parse(sys.argv[1:]))
