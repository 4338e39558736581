"""A program that makes Spark load the classes that jobs and queries need, for `class_archive.py`.

    python -m onceflow.runtime.spark.class_workload FOLDER JAVA_OPTION...

Runs what our jobs run (a barrier stage) and what queries over `onceflow-kafka` run (a windowed streaming
query from a file source, data sources in Python both ways), each once and tiny, in a local Spark whose JVM
is given these options; ends when that JVM has ended. Needs no broker. Everything it writes is in FOLDER.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from onceflow.runtime.spark.class_archive import as_setting

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
FILES = 2


class Numbers(DataSource):
    """Reads a few numbers and takes whatever is written, in the ways in which `onceflow-kafka` does."""

    @classmethod
    def name(cls) -> str:
        return "onceflow-class-workload"

    def schema(self) -> str:
        return "number long"

    def reader(self, schema: Any) -> DataSourceReader:
        return NumbersReader()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return NumbersStreamReader()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return NowhereWriter()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return NowhereStreamWriter()


class NumbersReader(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield some_numbers()


class NumbersStreamReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"next_offset": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:
        return {"next_offset": 3}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield some_numbers()


class NowhereWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return take_all(iterator)


class NowhereStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return take_all(iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        pass


def some_numbers() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": [1, 2, 3]})


def take_all(batches: Iterable[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()


def run(folder: Path, java_options: Sequence[str]) -> None:
    """Returns when the JVM has ended."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("class-workload")
    settings = {
        **SETTINGS,
        "spark.driver.extraJavaOptions": as_setting(java_options),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    jvm = vars(spark.sparkContext._gateway)["proc"]
    spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(list).count()
    spark.dataSource.register(Numbers)
    read_and_write(spark)
    stream(spark, folder)
    spark.stop()
    jvm.stdin.close()  # that is how it learns that its Python has ended
    jvm.wait()


def read_and_write(spark: SparkSession) -> None:
    numbers = spark.read.format(Numbers.name()).load()
    numbers.groupBy((f.col("number") % 2).alias("odd")).count().collect()
    numbers.write.format(Numbers.name()).mode("append").save()
    spark.createDataFrame([("u", 1)], "user STRING, amount BIGINT").collect()


def stream(spark: SparkSession, folder: Path) -> None:
    """Two micro-batches of windowed totals into the Python sink, and one from the Python source."""
    (folder / "input").mkdir()
    for number in range(FILES):
        (folder / "input" / f"{number}.json").write_text(f'{{"user":"u","at":{number * 3_600_000}}}\n')
    rows = spark.readStream.schema("user STRING, at BIGINT").option("maxFilesPerTrigger", 1)
    totals = (
        rows.json(str(folder / "input"))
        .withColumn("time", f.timestamp_millis("at"))
        .withWatermark("time", "1 second")
        .groupBy("user", f.window("time", "1 second"))
        .count()
    )
    numbers = spark.readStream.format(Numbers.name()).load()
    for name, frame in (("totals", totals), ("numbers", numbers)):
        writer = frame.writeStream.format(Numbers.name()).option("checkpointLocation", str(folder / name))
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
