"""A program of a Spark Connect user, see test_spark_connect.py. It starts a server of its own.

python spark_connect_program.py <bootstrap servers> <input> <output> <folder> <uid>
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import onceflow


def tell(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def main(servers: str, source: str, target: str, folder: str, uid: str) -> None:
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.daemon.module", "onceflow.structured_streaming.daemon")
        .getOrCreate()
    )
    tell(session=type(spark).__module__)
    onceflow.register(spark)

    def amounts() -> list[int]:
        rows = (
            spark.read.format("onceflow-kafka")
            .option("bootstrap_servers", servers)
            .option("subscribe", target)
            .option("format", "json")
            .schema("amount BIGINT")
            .load()
            .collect()
        )
        return sorted(row["amount"] for row in rows)

    def write(**options: str) -> None:
        rows = (
            spark.readStream.format("onceflow-kafka")
            .option("bootstrap_servers", servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("format", "json")
            .schema("user STRING, amount BIGINT")
            .load()
        )
        given = {"bootstrap_servers": servers, "topic": target, "uid": uid, "format": "json", "key": "user"}
        given |= {"checkpointLocation": f"{folder}/checkpoint", **options}
        writer = rows.writeStream.format("onceflow-kafka").options(**given)
        writer.trigger(availableNow=True).start().awaitTermination()

    write()
    tell(amounts=amounts())
    one = spark.createDataFrame([("u", 1_000)], "user STRING, amount BIGINT")
    (
        one.write.format("onceflow-kafka")
        .options(bootstrap_servers=servers, topic=target, format="json", staging=f"{folder}/staging")
        .mode("append")
        .save()
    )
    tell(amounts=amounts())
    try:
        write(topik="x", checkpointLocation=f"{folder}/other")
    except Exception as error:
        tell(refused=str(error))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
