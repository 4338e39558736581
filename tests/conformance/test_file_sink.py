"""Files of each format, here, on S3 and on HDFS, pass the kit of sinks that commit in the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.connectors.files.source import files_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext, Sink
from onceflow.runtime.contracts.sink import WentBack
from onceflow.sinks.files import CompactPolicy, FileSink
from onceflow.testing.kit import CommittingSinkKit
from tests.hdfs_server import HdfsServer
from tests.s3_server import S3Server
from tests.table_sinks import ORDERS, TableJob, order


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


class Files(CommittingSinkKit):
    """A folder of files of one format."""

    in_new_processes = False
    format: ClassVar[str] = "parquet"
    options: ClassVar[dict[str, Any]] = {}

    @property
    def url(self) -> str:
        return f"{self.folder}/out"

    @property
    def storage_options(self) -> dict[str, Any] | None:
        return None

    def sink(self) -> Sink:
        return FileSink(self.url, self.format, storage_options=self.storage_options, **self.options)

    def visible(self) -> list[int]:
        """What the job's own reader sees."""
        ending = {"gzip": ".gz", "zstd": ".zst"}.get(self.options.get("compression", ""), "")
        pattern = f"{self.url}/**/*.{self.format}{ending}"
        source = files_source(pattern, self.schema, self.format, None, self.storage_options)
        if not source.place.files():
            return []
        reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock()))
        reader.add_splits(source.open_enumerator("job", ManualClock()).initial_splits())
        rows: list[int] = []
        while (fetch := reader.poll(0, 1_000)) is not None:
            rows += fetch.records.column(0).to_pylist()
        return rows


class TestParquet(Files):
    in_new_processes = True


class TestPackedLinesInFolders(Files):
    format = "jsonl"
    options: ClassVar[dict[str, Any]] = {
        "compression": "zstd",
        "partition_by": lambda batch: [f"odd={n % 2}" for n in batch.column(0).to_pylist()],
    }


class TestCsv(Files):
    format = "csv"


class TestAvro(Files):
    format = "avro"


class TestJoinedParquet(Files):
    """Files of both writers become one, and are seen by each commit."""

    in_new_processes = True
    options: ClassVar[dict[str, Any]] = {"compact": CompactPolicy(checkpoints=1)}


class TestJoinedPackedCsvInFolders(Files):
    format = "csv"
    options: ClassVar[dict[str, Any]] = {
        **TestPackedLinesInFolders.options,
        "compression": "gzip",
        "compact": CompactPolicy(checkpoints=1),
    }


class TestJoinedAvro(Files):
    format = "avro"
    options: ClassVar[dict[str, Any]] = {"compact": CompactPolicy(checkpoints=1)}


class TestOnS3(Files):
    format = "jsonl"
    server: ClassVar[S3Server]

    @pytest.fixture(autouse=True)
    def serve(self, server: S3Server) -> None:
        type(self).server = server  # the kit makes other objects of the class

    @property
    def url(self) -> str:
        return f"s3://{self.settings['bucket']}/out"

    @property
    def storage_options(self) -> dict[str, Any]:
        given: dict[str, Any] = self.settings["options"]
        return given

    def prepare(self) -> None:
        self.settings["bucket"] = self.server.new_bucket()
        self.settings["options"] = self.server.options


class TestJoinedOnS3(TestOnS3):
    options: ClassVar[dict[str, Any]] = {"compact": CompactPolicy(checkpoints=1)}


@pytest.fixture(scope="module")
def hdfs() -> Iterator[HdfsServer]:
    with HdfsServer() as server:
        yield server


@dataclass
class Row:
    n: int


def test_a_job_on_hdfs_writes_files_that_another_reads(hdfs: HdfsServer) -> None:
    """Its checkpoints are there, too."""
    out, folder = hdfs.new_folder(), hdfs.new_folder()
    job = Job("writes")
    job.from_records([Row(n) for n in range(1_000)]).to_files(f"{out}/rows")
    job.run(folder, master="threads[2]")
    read = Job("reads")
    rows = read.from_files(f"{out}/rows/**/*.parquet", Row).collect()
    read.run(master="threads[1]")
    assert sorted(row.n for row in rows) == list(range(1_000))


def test_files_on_hdfs_are_taken_back(hdfs: HdfsServer) -> None:
    out = hdfs.new_folder()
    sink = FileSink(f"{out}/rows", "jsonl", partition_by="day")
    job = TableJob(sink, ORDERS)
    promised = []
    for n in (1, 2, 3):
        promised.append(job.promise(n, [order(n, day="mon"), order(10 * n, day="tue")]))
        job.committer.last_committed()
        job.committer.commit(n, promised[-1])
        job.writer.commit(n)
    job.close()
    job = TableJob(sink, ORDERS, attempt=2, restored_id=4)
    assert job.committer.last_committed() == 3
    job.committer.take_back(4, WentBack(1, 3), promised[0])  # type: ignore[attr-defined]
    job.checkpoint(5, [order(7)])
    job.close()
    read = Job("reads")
    rows = read.from_files(f"{out}/rows/**/*.jsonl", pa.schema([("id", pa.int64())])).collect()
    read.run(master="threads[1]")
    assert sorted(row["id"] for row in rows) == [1, 7, 10]


@pytest.mark.soak
class TestOnHdfs(Files):
    hdfs: ClassVar[HdfsServer]

    @pytest.fixture(autouse=True)
    def serve(self, hdfs: HdfsServer) -> None:
        type(self).hdfs = hdfs  # the kit makes other objects of the class

    @property
    def url(self) -> str:
        return str(self.settings["url"])

    def prepare(self) -> None:
        self.settings["url"] = self.hdfs.new_folder()


@pytest.mark.soak
class TestJoinedOnHdfs(TestOnHdfs):
    options: ClassVar[dict[str, Any]] = {"compact": CompactPolicy(checkpoints=1)}
