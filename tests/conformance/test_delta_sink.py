"""A Delta table, appended to and by key, passes the suite of sinks that commit in the driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from onceflow.connectors.tables.file_names import ledger_name
from onceflow.runtime.contracts import CommittingSink
from onceflow.runtime.testing.conformance import COMMITTER_CHECKS, CommittingSinkUnderTest
from onceflow.sinks.delta import DeltaSink
from tests.read_tables import read_delta
from tests.table_sinks import LINEAGE, under_test


@pytest.mark.parametrize("key", [None, "n"], ids=["appended", "by key"])
@pytest.mark.parametrize("check", COMMITTER_CHECKS, ids=lambda check: check.__name__)
def test_delta(check: Callable[[CommittingSinkUnderTest], None], key: str | None, tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    sink = DeltaSink(url, key=key, create_table=True, partition_by="day")
    assert isinstance(sink, CommittingSink)

    def committed() -> int:
        if not DeltaTable.is_deltatable(url):
            return 0
        return DeltaTable(url).transaction_version(ledger_name(LINEAGE, "out")) or 0

    check(under_test(sink, committed, lambda: [row["n"] for row in read_delta(url)]))
