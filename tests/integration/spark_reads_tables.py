"""Spark itself reads a Delta table and an Iceberg table, with the makers' packages for it.

Run as a program with one argument, JSON: jars (paths), delta and iceberg (the folders of the tables). Prints
the rows of each as a line of JSON: {"rows": {"delta": ..., "iceberg": ...}}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def main(config: dict[str, Any]) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(config["jars"]))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = {}
    for kind in ("delta", "iceberg"):
        table = spark.read.format(kind).load(config[kind])
        rows[kind] = [row.asDict() for row in table.orderBy("id").collect()]
    print(json.dumps({"rows": rows}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
