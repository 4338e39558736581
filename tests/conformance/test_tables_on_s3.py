"""Tables of Delta and of Iceberg on S3 pass the suite of sinks that commit in the driver, and their small
files are joined there, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from onceflow.connectors.iceberg.iceberg_ledger import committed_in
from onceflow.connectors.tables.file_names import ledger_name
from onceflow.runtime.testing.conformance import COMMITTER_CHECKS, CommittingSinkUnderTest
from onceflow.sinks.delta import DeltaSink
from onceflow.sinks.iceberg import IcebergSink
from tests.s3_server import KEY, SECRET, S3Server, gateway
from tests.table_sinks import LINEAGE, ORDERS, TableJob, order, under_test

Check = Callable[[CommittingSinkUnderTest], None]
LEDGER = ledger_name(LINEAGE, "out")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server(gateway()) as server:
        yield server


class DeltaOnS3:
    def __init__(self, server: S3Server, folder: Path) -> None:
        self.url = f"s3://{server.new_bucket()}/table"
        self.storage = {**server.environment, "AWS_ALLOW_HTTP": "true"}

    def sink(self, **options: Any) -> DeltaSink:
        return DeltaSink(self.url, create_table=True, storage_options=self.storage, **options)

    def committed(self) -> int:
        if not DeltaTable.is_deltatable(self.url, self.storage):
            return 0
        return DeltaTable(self.url, storage_options=self.storage).transaction_version(LEDGER) or 0

    def column(self, name: str) -> list[int]:
        found = DeltaTable(self.url, storage_options=self.storage).to_pyarrow_table()
        return [int(value) for value in found[name].to_pylist()]

    def files(self) -> int:
        return len(DeltaTable(self.url, storage_options=self.storage).file_uris())


class IcebergOnS3:
    """The catalog is a database on this machine."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"s3://{server.new_bucket()}/warehouse",
            "s3.endpoint": f"http://127.0.0.1:{server.port}",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink(self.catalog, "shop.orders", create_table=True, **options)

    def table(self) -> Any:
        return load_catalog(None, **self.catalog).load_table("shop.orders")

    def committed(self) -> int:
        return committed_in(self.table(), LEDGER) or 0

    def column(self, name: str) -> list[int]:
        return [int(value) for value in self.table().scan().to_arrow()[name].to_pylist()]

    def files(self) -> int:
        return len(list(self.table().scan().plan_files()))


@pytest.fixture(params=[DeltaOnS3, IcebergOnS3], ids=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, server: S3Server, tmp_path: Path) -> Any:
    return request.param(server, tmp_path)


@pytest.mark.parametrize(
    "key", [pytest.param(None, id="appended"), pytest.param("n", id="by key", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("check", COMMITTER_CHECKS, ids=lambda check: check.__name__)
def test_the_contract(check: Check, key: str | None, table: Any) -> None:
    sink = table.sink(key=key, partition_by="day")
    check(under_test(sink, table.committed, lambda: table.column("n")))


def test_small_files_are_joined(table: Any) -> None:
    job = TableJob(table.sink(compact_every=3), ORDERS)
    for n in range(1, 4):
        job.checkpoint(n, [order(n)])
    job.close()
    assert table.files() == 1
    assert sorted(table.column("id")) == [1, 2, 3]
    assert table.committed() == 3
