"""onceflow's Kafka source and sink in a Spark query of yours."""

from typing import Any

import onceflow


def copy(spark: Any, checkpoint_dir: str) -> Any:
    """Start a query that copies a topic, exactly once."""
    onceflow.register(spark)
    options = {"kafka.bootstrap.servers": "localhost:9092"}
    source = (
        spark.readStream.format("onceflow-kafka")
        .options(**options, subscribe="purchases")
        .load()
    )
    sink = source.select("key", "value").writeStream.format("onceflow-kafka")
    return sink.options(
        **options, topic="copy", checkpointLocation=checkpoint_dir
    ).start()


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    query = copy(SparkSession.builder.getOrCreate(), "./checkpoints")
    while not query.awaitTermination(60) and query.isActive:
        print(query.lastProgress)
    print(onceflow.why_failed(query.exception()))
