"""An Iceberg table, appended to and by key, passes the suite of sinks that commit in the driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from onceflow.connectors.iceberg.iceberg_ledger import committed_in
from onceflow.connectors.tables.file_names import ledger_name
from onceflow.runtime.contracts import CommittingSink
from onceflow.runtime.testing.conformance import COMMITTER_CHECKS, CommittingSinkUnderTest
from onceflow.sinks.iceberg import IcebergSink
from tests.read_tables import read_iceberg
from tests.table_sinks import LINEAGE, under_test


@pytest.mark.parametrize("key", [None, "n"], ids=["appended", "by key"])
@pytest.mark.parametrize("check", COMMITTER_CHECKS, ids=lambda check: check.__name__)
def test_iceberg(check: Callable[[CommittingSinkUnderTest], None], key: str | None, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    sink = IcebergSink(catalog, "shop.orders", key=key, create_table=True, partition_by="day")
    assert isinstance(sink, CommittingSink)

    def table() -> Any:
        return load_catalog(None, **catalog).load_table("shop.orders")

    def committed() -> int:
        return committed_in(table(), ledger_name(LINEAGE, "out")) or 0

    check(under_test(sink, committed, lambda: [row["n"] for row in read_iceberg(table().metadata_location)]))
