"""A copy, stopped and continued, and batches, on one version of PySpark: see test_spark_versions.py.

python spark_versions_program.py <bootstrap servers> <input> <output> <folder> <uid>

It waits for a line on standard input between the first and the second run of the copy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import onceflow


def tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def failure(attempt: Callable[[], object]) -> str:
    """What it raised; empty: nothing."""
    try:
        attempt()
    except Exception as error:
        return str(error)
    return ""


class Queries:
    """Each way to use the format, on two topics."""

    def __init__(self, spark: Any, servers: str, source: str, target: str, folder: str, uid: str) -> None:
        self._spark = spark
        self._servers = servers
        self._source = source
        self._target = target
        self._folder = folder
        self._uid = uid

    def read(self, topic: str) -> Any:
        reader = self._spark.read.format("onceflow-kafka")
        return reader.options(bootstrap_servers=self._servers, subscribe=topic)

    def amounts(self) -> list[int]:
        rows = self.read(self._target).option("format", "json").schema("amount BIGINT").load().collect()
        return sorted(row["amount"] for row in rows)

    def stream(self, **options: str) -> Any:
        reader = self._spark.readStream.format("onceflow-kafka").schema("user STRING, amount BIGINT")
        given = {"bootstrap_servers": self._servers, "subscribe": self._source, "format": "json"}
        return reader.options(**given, startingOffsets="earliest", **options).load()

    def into_memory(self) -> int:
        writer = self.stream().writeStream.format("memory").queryName("seen")
        writer.trigger(availableNow=True).start().awaitTermination()
        return int(self._spark.table("seen").count())

    def copy(self, name: str, limits: dict[str, str] | None = None, **options: str) -> None:
        given = {"bootstrap_servers": self._servers, "topic": self._target, "format": "json", "key": "user"}
        given |= {"uid": f"{self._uid}-{name}", "checkpointLocation": f"{self._folder}/{name}", **options}
        writer = self.stream(**(limits or {})).writeStream.format("onceflow-kafka").options(**given)
        writer.trigger(availableNow=True).start().awaitTermination()

    def into_files(self) -> None:
        """From Kafka."""
        given = {"uid": f"{self._uid}-files", "checkpointLocation": f"{self._folder}/files"}
        given |= {"path": f"{self._folder}/in", "format": "jsonl"}
        writer = self.stream().writeStream.format("onceflow-files").options(**given)
        writer.trigger(availableNow=True).start().awaitTermination()

    def from_files(self) -> None:
        """Copies those files, from format to format."""
        reader = self._spark.readStream.format("onceflow-files").schema("user STRING, amount BIGINT")
        rows = reader.options(format="jsonl", maxFilesPerTrigger="1").load(f"{self._folder}/in")
        given = {"uid": f"{self._uid}-copied", "checkpointLocation": f"{self._folder}/copied"}
        given |= {"path": f"{self._folder}/out"}
        writer = rows.writeStream.format("onceflow-files").options(**given)
        writer.trigger(availableNow=True).start().awaitTermination()

    def write_one(self) -> None:
        one = self._spark.createDataFrame([("u", 1_000)], "user STRING, amount BIGINT")
        given = {"bootstrap_servers": self._servers, "topic": self._target, "format": "json"}
        one.write.format("onceflow-kafka").options(**given, staging=self._folder).mode("append").save()


def main(servers: str, source: str, target: str, folder: str, uid: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "Asia/Tokyo").config("spark.log.level", "OFF")
    builder = builder.config("spark.python.daemon.module", "onceflow.structured_streaming.daemon")
    spark = builder.getOrCreate()
    tell(version=pyspark.__version__)
    onceflow.register(spark)
    queries = Queries(spark, servers, source, target, folder, uid)
    tell(empty=queries.read(target).load().count())
    raw = queries.read(source).load()
    tell(raw=[row["key"].decode() for row in raw.orderBy("offset").limit(2).collect()])
    tell(earliest=raw.selectExpr("date_format(min(timestamp), 'yyyy-MM-dd HH:mm:ss.SSS')").collect()[0][0])
    tell(streamed=queries.into_memory())
    tell(copied=failure(lambda: queries.copy("copy")))
    tell(amounts=queries.amounts())
    sys.stdin.readline()
    tell(copied=failure(lambda: queries.copy("copy")))
    tell(amounts=queries.amounts())
    tell(written=failure(queries.write_one))
    tell(amounts=queries.amounts())
    tell(limited=failure(lambda: queries.copy("limited", {"maxOffsetsPerTrigger": "10"})))
    tell(refused=failure(lambda: queries.copy("refused", topik="x")))
    tell(into_files=failure(queries.into_files))
    tell(from_files=failure(queries.from_files))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
