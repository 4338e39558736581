"""Tests of a Structured Streaming pipeline: its query, its stream, all of it on Kafka."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onceflow
import pytest
from onceflow.runtime.errors import OnceflowError
from onceflow.testing import Topic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

# --- The pipeline. In a project of your own it is a module that the tests import.

SCHEMA = "user STRING, amount BIGINT, ts BIGINT"


def totals(purchases: DataFrame) -> DataFrame:
    return (
        purchases.withColumn("at", f.timestamp_millis("ts"))
        .withWatermark("at", "2 seconds")
        .groupBy("user", f.window("at", "10 seconds"))
        .agg(f.sum("amount").alias("total"))
        .select("user", f.unix_millis("window.end").alias("window_end"), "total")
    )


def run(spark: SparkSession, servers: str, source: str, target: str, at: Path) -> None:
    """Everything that is in the source by now, into the target."""
    reader = spark.readStream.format("onceflow-kafka").schema(SCHEMA)
    reader = reader.options(
        bootstrap_servers=servers,
        subscribe=source,
        startingOffsets="earliest",
        format="json",
    )
    writer = totals(reader.load()).writeStream.format("onceflow-kafka")
    writer = writer.options(
        bootstrap_servers=servers,
        topic=target,
        uid="totals",
        format="json",
        checkpointLocation=str(at),
    )
    writer.trigger(availableNow=True).start().awaitTermination()


# --- Its tests.


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = builder.config(map=settings).getOrCreate()
    onceflow.register(session)
    yield session
    session.stop()


def test_the_query(spark: SparkSession) -> None:
    rows = [("ann", 5, 0), ("ann", 7, 9_999), ("bob", 1, 3_000), ("ann", 2, 10_000)]
    found = totals(spark.createDataFrame(rows, SCHEMA)).collect()
    assert sorted(map(tuple, found)) == [
        ("ann", 10_000, 12),
        ("ann", 20_000, 2),
        ("bob", 10_000, 1),
    ]


def test_a_window_fires_and_a_late_row_is_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    query = totals(rows).writeStream.format("memory").queryName("fired").start()

    def after(batch: int, **row: Any) -> list[tuple[Any, ...]]:
        """What has come out once this row has been a batch of its own."""
        hidden = tmp_path / "_next"  # Spark passes over names that begin so
        hidden.write_text(json.dumps(row))
        hidden.rename(tmp_path / f"{batch}.json")
        query.processAllAvailable()
        return [tuple(found) for found in spark.table("fired").collect()]

    try:
        assert after(0, user="ann", amount=5, ts=0) == []  # the window is open
        assert after(1, user="bob", amount=1, ts=12_000) == [("ann", 10_000, 5)]
        assert after(2, user="ann", amount=7, ts=1) == [("ann", 10_000, 5)]  # late
    finally:
        query.stop()


def test_a_batch_that_is_run_again_is_written_once(
    spark: SparkSession, topic: Callable[..., Topic], tmp_path: Path
) -> None:
    source, target = topic("purchases"), topic("totals")
    servers, checkpoint = source.bootstrap_servers, tmp_path / "checkpoint"
    source.produce(
        {"user": "ann", "amount": 5, "ts": 0},
        {"user": "ann", "amount": 7, "ts": 12_000},
    )
    run(spark, servers, source.name, target.name, checkpoint)
    first = {"user": "ann", "window_end": 10_000, "total": 5}
    assert target.records(1) == [first]

    # What a kill leaves between the batch's transaction and Spark's note that it is done.
    done = checkpoint / "commits"
    last = max(int(path.name) for path in done.iterdir() if path.name.isdecimal())
    (done / f"{last}").unlink()
    (done / f".{last}.crc").unlink()

    source.produce({"user": "bob", "amount": 1, "ts": 22_000})
    run(spark, servers, source.name, target.name, checkpoint)
    assert target.records(2) == [
        first,
        {"user": "ann", "window_end": 20_000, "total": 7},
    ]
    with pytest.raises(OnceflowError, match="has 2 records"):
        target.records(3, timeout="1 s")
