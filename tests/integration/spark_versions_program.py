"""A copy, stopped and continued, and batches, on one version of PySpark: see test_spark_versions.py.

python spark_versions_program.py <bootstrap servers> <input> <output> <folder> <uid>

It waits for a line on standard input between the first and the second run of the copy.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import onceflow


def tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def main(servers: str, source: str, target: str, folder: str, uid: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.session.timeZone", "Asia/Tokyo").config("spark.log.level", "OFF")
    builder = builder.config("spark.python.daemon.module", "onceflow.structured_streaming.daemon")
    spark = builder.getOrCreate()
    tell(version=pyspark.__version__)
    onceflow.register(spark)

    def read(topic: str) -> Any:
        return spark.read.format("onceflow-kafka").options(bootstrap_servers=servers, subscribe=topic)

    def amounts() -> list[int]:
        rows = read(target).option("format", "json").schema("amount BIGINT").load().collect()
        return sorted(row["amount"] for row in rows)

    def stream(**options: str) -> Any:
        reader = spark.readStream.format("onceflow-kafka").schema("user STRING, amount BIGINT")
        given = {"bootstrap_servers": servers, "subscribe": source, "startingOffsets": "earliest"}
        return reader.options(format="json", **given, **options).load()

    def into_memory() -> int:
        query = stream().writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
        query.awaitTermination()
        return int(spark.table("seen").count())

    def copy(**options: str) -> None:
        limits = {name: options.pop(name) for name in ("maxOffsetsPerTrigger",) if name in options}
        rows = stream(**limits)
        given = {"bootstrap_servers": servers, "topic": target, "uid": uid, "format": "json", "key": "user"}
        given |= {"checkpointLocation": f"{folder}/checkpoint", **options}
        writer = rows.writeStream.format("onceflow-kafka").options(**given)
        writer.trigger(availableNow=True).start().awaitTermination()

    def attempt(**options: str) -> str:
        try:
            copy(**options)
        except Exception as error:
            return str(error)
        return ""

    tell(empty=read(target).load().count())
    tell(raw=[row["key"].decode() for row in read(source).load().orderBy("offset").limit(2).collect()])
    times = read(source).load().selectExpr("date_format(min(timestamp), 'yyyy-MM-dd HH:mm:ss.SSS')").collect()
    tell(earliest=times[0][0])
    tell(streamed=into_memory())
    tell(copied=attempt())
    tell(amounts=amounts())
    sys.stdin.readline()
    tell(copied=attempt())
    tell(amounts=amounts())
    one = spark.createDataFrame([("u", 1_000)], "user STRING, amount BIGINT")
    written = one.write.format("onceflow-kafka").mode("append")
    try:
        written.options(bootstrap_servers=servers, topic=target, format="json", staging=folder).save()
    except Exception as error:
        tell(written=str(error))
    tell(amounts=amounts())
    other = {"checkpointLocation": f"{folder}/limited", "uid": uid + "-limited"}
    tell(limited=attempt(maxOffsetsPerTrigger="10", **other))
    tell(refused=attempt(topik="x", checkpointLocation=f"{folder}/refused"))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
