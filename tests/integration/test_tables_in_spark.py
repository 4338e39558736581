"""What DeltaSink and IcebergSink have written is read by Spark, with the packages that the makers of the
tables have for it: appended, by key, with deletes, with columns added, in partitions, and after small files
were joined."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from onceflow.connectors.kafka.embedded.jars import FetchError
from onceflow.runtime.environment.java import JavaError
from onceflow.runtime.records import RowKind
from onceflow.sinks.delta import DeltaSink
from onceflow.sinks.iceberg import IcebergSink
from tests.integration.test_spark_versions import Program, install
from tests.java_server import jars_of
from tests.table_sinks import ORDERS, TableJob, order

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]
PROGRAM = Path(__file__).with_name("spark_reads_tables.py")
VERSION = "4.1"
"""The newest for which both makers have packages."""
INSERT, DELETE = int(RowKind.INSERT), int(RowKind.DELETE)


def sinks(folder: Path, catalog: dict[str, str], **options: Any) -> list[Any]:
    given = {"create_table": True, "partition_by": "day", **options}
    return [DeltaSink(str(folder / "delta"), **given), IcebergSink(catalog, "shop.orders", **given)]


def write(sink: Any, by_key: bool) -> list[dict[str, Any]]:
    """Five checkpoints; the rows that are there in the end."""
    job = TableJob(sink, ORDERS)
    for n in range(1, 5):
        job.checkpoint(n, [order(n, day="mon"), order(10 + n, day=None)])
    if by_key:
        job.checkpoint(5, [order(1, day="mon"), order(12, cents=5, day="tue")], [DELETE, INSERT])
    job.close()
    ids = [2, 3, 4, 11, 12, 13, 14] if by_key else [1, 2, 3, 4, 11, 12, 13, 14]
    rows = [order(n, day="mon" if n < 10 else None) for n in ids]
    return [order(12, cents=5, day="tue") if by_key and row["id"] == 12 else row for row in rows]


@pytest.mark.parametrize("key", [None, "id"], ids=["appended", "by key"])
def test_spark_reads_each_row_once(key: str | None, tmp_path: Path) -> None:
    try:
        _, jars = jars_of("spark-4.1-tables")
    except (JavaError, FetchError) as error:
        pytest.skip(f"Spark's packages of the tables can't be had here: {error}")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    wanted = []
    for sink in sinks(tmp_path, catalog, key=key, compact_every=5 if key else 4):
        wanted = write(sink, key is not None)
    more = pa.schema([*ORDERS, pa.field("note", pa.string())])
    for sink in sinks(tmp_path, catalog, key=key, schema_evolution="add"):
        job = TableJob(sink, more, attempt=2, restored_id=5)
        job.checkpoint(6, [{**order(20), "note": "added"}])
        job.close()
    wanted = [{**row, "note": None} for row in wanted] + [{**order(20), "note": "added"}]
    table = load_catalog(None, **catalog).load_table("shop.orders")
    iceberg = Path(table.location().removeprefix("file://"))
    # Spark finds a table without a catalog by these two.
    shutil.copy(table.metadata_location.removeprefix("file://"), iceberg / "metadata" / "v1.metadata.json")
    (iceberg / "metadata" / "version-hint.text").write_text("1")
    places = {"delta": str(tmp_path / "delta"), "iceberg": str(iceberg)}
    config = {"jars": [str(jar) for jar in jars], **places}
    packages = install(VERSION, tmp_path / "packages")
    program = Program(packages, [json.dumps(config)], tmp_path / "errors", PROGRAM)
    try:
        assert program.told("rows") == {"delta": wanted, "iceberg": wanted}
    finally:
        program.close()
