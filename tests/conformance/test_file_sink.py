"""Files of each format, here and on another file system, pass the kit of sinks that commit in the driver."""

from __future__ import annotations

import uuid
from typing import ClassVar

import fsspec

from onceflow.connectors.files.source import files_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext, Sink
from onceflow.sinks.files import file_sink
from onceflow.testing.kit import CommittingSinkKit


class Files(CommittingSinkKit):
    """A folder of files of one format."""

    format: ClassVar[str] = "parquet"

    @property
    def url(self) -> str:
        return f"{self.folder}/out"

    def sink(self) -> Sink:
        return file_sink(self.url, self.format, None)

    def visible(self) -> list[int]:
        """What the job's own reader sees."""
        source = files_source(self.url, self.schema, self.format, None, None)
        if not source.place.files():
            return []
        reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock()))
        reader.add_splits(source.open_enumerator("job", ManualClock()).initial_splits())
        rows: list[int] = []
        while (fetch := reader.poll(0, 1_000)) is not None:
            rows += fetch.records.column(0).to_pylist()
        return rows


class TestParquet(Files):
    pass


class TestJsonLines(Files):
    format = "jsonl"
    in_new_processes = False


class TestCsv(Files):
    format = "csv"
    in_new_processes = False


class TestOnAnotherFileSystem(Files):
    format = "jsonl"
    in_new_processes = False

    @property
    def url(self) -> str:
        return f"memory://{self.settings['bucket']}/out"

    def prepare(self) -> None:
        self.settings["bucket"] = uuid.uuid4().hex

    def teardown_method(self) -> None:
        super().teardown_method()
        files = fsspec.filesystem("memory")
        if "bucket" in self.settings and files.exists(self.settings["bucket"]):
            files.rm(self.settings["bucket"], recursive=True)
