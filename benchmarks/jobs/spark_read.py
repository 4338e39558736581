"""Reads topics again and again with one of two Kafka sources of Spark, into nothing. Run by
benchmarks/spark_source.py in an environment of the source's own.

Says on standard output when a pass begins and ends: `begin NUMBER TOPIC TIME`, `end NUMBER TOPIC TIME ROWS`.
"""

import sys
import tempfile
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

EVENT = "user STRING, amount BIGINT, ts BIGINT"


def records(spark: Any, source: str, shape: str, servers: str, topic: str, limit: str) -> Any:
    reader = spark.readStream.format("kafka" if source == "spark" else "onceflow-kafka")
    reader = reader.option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest")
    if limit != "0":
        reader = reader.option("maxOffsetsPerTrigger", limit)
    if shape == "headers":
        reader = reader.option("includeHeaders", "true")
    if source == "spark":
        reader = reader.option("kafka.max.poll.records", "10000")
        reader = reader.option("kafka.fetch.max.bytes", "8388608")
        reader = reader.option("kafka.max.partition.fetch.bytes", "8388608")
        found = reader.load()
        if shape == "json":
            found = found.select(f.from_json(f.col("value").cast("string"), EVENT).alias("e")).select("e.*")
        return found.select("value") if shape == "value" else found
    if shape == "json":
        return reader.option("format", "json").schema(EVENT).load()
    return reader.schema("value BINARY").load() if shape == "value" else reader.load()


def session(source: str, jars: str, settings: tuple[str, ...]) -> Any:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "4g").config("spark.log.level", "ERROR")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC")
    if source == "spark":
        builder = builder.config("spark.jars", jars)
    else:
        builder = builder.config("spark.python.daemon.module", "onceflow.structured_streaming.daemon")
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    return builder.getOrCreate()


def main(
    source: str, shape: str, servers: str, topics: str, passes: str, limit: str, jars: str, *settings: str
) -> None:
    spark = session(source, jars, settings)
    if source == "onceflow":
        import onceflow

        onceflow.register(spark)
    names = topics.split(",")
    frames = [records(spark, source, shape, servers, topic, limit) for topic in names]
    for number in range(int(passes)):
        which = number % len(names)
        with tempfile.TemporaryDirectory() as folder:
            print("begin", number, names[which], time.time(), flush=True)
            writer = frames[which].writeStream.format("noop").option("checkpointLocation", folder)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            rows = sum(progress["numInputRows"] for progress in query.recentProgress)
            print("end", number, names[which], time.time(), rows, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
