"""The folder source passes the suites of sources and of sources that prune."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import DataLossError
from onceflow.runtime.testing.connectors.folder_source import FolderSource, add_file
from onceflow.testing.kit import SourceKit

SCHEMA = pa.schema([("n", pa.int64())])


def filled(folder: Path) -> FolderSource:
    for number, rows in enumerate(([1, 2, 3], [], [4], list(range(5, 30))), 1):
        add_file(folder, number, [{"n": n} for n in rows])
    return FolderSource(str(folder), SCHEMA, is_bounded=True)


class TestFolderSource(SourceKit):
    def prepare(self) -> None:
        filled(Path(self.folder))

    def source(self) -> FolderSource:
        return FolderSource(self.folder, SCHEMA, is_bounded=True)


def test_a_file_that_was_cut_is_told(tmp_path: Path) -> None:
    source = filled(tmp_path)
    splits = source.open_enumerator("job", ManualClock()).initial_splits()
    path = tmp_path / splits[0].split_id
    path.write_text("")
    at_two = [type(splits[0])(splits[0].split_id, {"next_byte": 9})]
    with pytest.raises(DataLossError, match=r"0000000001.jsonl is to be read on from byte 9, and has 0"):
        source.open_enumerator("job", ManualClock()).check_restored(at_two)
