"""The folder source passes the suites of sources and of sources that prune."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Source
from onceflow.runtime.errors import DataLossError
from onceflow.runtime.testing.conformance import PAUSING_CHECKS, PRUNING_CHECKS, SOURCE_CHECKS
from onceflow.runtime.testing.connectors.folder_source import FolderSource, add_file

SCHEMA = pa.schema([("n", pa.int64())])


def filled(folder: Path) -> FolderSource:
    for number, rows in enumerate(([1, 2, 3], [], [4], list(range(5, 30))), 1):
        add_file(folder, number, [{"n": n} for n in rows])
    return FolderSource(str(folder), SCHEMA, is_bounded=True)


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_as_a_source(check: Callable[[Source], None], tmp_path: Path) -> None:
    check(filled(tmp_path))


@pytest.mark.parametrize("check", PRUNING_CHECKS, ids=lambda check: check.__name__)
def test_as_a_source_that_prunes(check: Callable[[Source], None], tmp_path: Path) -> None:
    check(filled(tmp_path))


@pytest.mark.parametrize("check", PAUSING_CHECKS, ids=lambda check: check.__name__)
def test_as_a_source_that_pauses(check: Callable[[Source], None], tmp_path: Path) -> None:
    check(filled(tmp_path))


def test_a_file_that_was_cut_is_told(tmp_path: Path) -> None:
    source = filled(tmp_path)
    splits = source.open_enumerator("job", ManualClock()).initial_splits()
    path = tmp_path / splits[0].split_id
    path.write_text("")
    at_two = [type(splits[0])(splits[0].split_id, {"next_byte": 9})]
    with pytest.raises(DataLossError, match=r"0000000001.jsonl is to be read on from byte 9, and has 0"):
        source.open_enumerator("job", ManualClock()).check_restored(at_two)
