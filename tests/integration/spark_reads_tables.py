"""Spark itself reads a Delta table and an Iceberg table, with the makers' packages for it.

Run as a program with one argument, JSON: jars (paths), delta (a table's folder), iceberg (the location of a
table's metadata). Prints the rows of each as a line of JSON: {"rows": {"delta": ..., "iceberg": ...}}.
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
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.here": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.here.catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
    "spark.sql.catalog.here.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
}


def main(config: dict[str, Any]) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(config["jars"]))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sql("CREATE NAMESPACE here.shop")
    spark.sql(f"CALL here.system.register_table('shop.orders', '{config['iceberg']}')")
    tables = {
        "delta": spark.read.format("delta").load(config["delta"]),
        "iceberg": spark.table("here.shop.orders"),
    }
    rows = {kind: [row.asDict() for row in table.orderBy("id").collect()] for kind, table in tables.items()}
    print(json.dumps({"rows": rows}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
