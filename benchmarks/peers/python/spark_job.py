"""The workloads in Spark Structured Streaming. Run by the peer's own Python: nothing of onceflow is here."""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

EVENT = "user STRING, amount BIGINT, ts BIGINT"


def main(
    workload: str, servers: str, source: str, target: str, folder: str, jars: str, cores: str, settings: str
) -> None:
    """`settings`: a file with Kafka's for a secured listener, as a JSON object."""
    security = {f"kafka.{name}": value for name, value in json.loads(Path(settings).read_text()).items()}
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:+UseParallelGC")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("kafka.max.poll.records", "10000")
        .option("kafka.fetch.max.bytes", "8388608")
        .option("kafka.max.partition.fetch.bytes", "8388608")
        .options(**security)
        .load()
    )
    rows = totals(records) if workload == "main" else records.select("value")
    query = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("kafka.linger.ms", "20")
        .option("kafka.batch.size", "262144")
        .options(**security)
        .option("checkpointLocation", f"{folder}/checkpoints")
        .outputMode("append")
        .start()
    )
    query.awaitTermination()


def totals(records: Any) -> Any:
    event = f.from_json(f.col("value").cast("string"), EVENT)
    return (
        records.select(event.alias("e"))
        .select("e.user", "e.amount", f.timestamp_millis("e.ts").alias("at"))
        .withWatermark("at", "2 seconds")
        .groupBy(f.window("at", "10 seconds"), "user")
        .agg(f.count("*").alias("count"), f.sum("amount").alias("total"))
        .select(
            f.col("user").alias("key"),
            f.to_json(
                f.struct("user", f.unix_millis("window.end").alias("window_end"), "count", "total")
            ).alias("value"),
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
