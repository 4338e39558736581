"""Kafka to Kafka through Spark with onceflow's source and sink: each value as it is."""

import argparse

from pyspark.sql import SparkSession

import onceflow


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap-servers", "input", "output", "checkpoint", "staging"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.daemon.module", "onceflow.structured_streaming.daemon")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    onceflow.register(spark)
    values = (
        spark.readStream.format("onceflow-kafka")
        .option("bootstrap_servers", options.bootstrap_servers)
        .option("subscribe", options.input)
        .option("startingOffsets", "earliest")
        .schema("value BINARY")
        .load()
    )
    query = (
        values.writeStream.format("onceflow-kafka")
        .option("bootstrap_servers", options.bootstrap_servers)
        .option("topic", options.output)
        .option("uid", f"values-{options.output}")
        .option("staging", options.staging)
        .option("checkpointLocation", options.checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
