"""A table in memory: columns that nobody reads are left out, and a program with other rows is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.collections.table_source import TableSource
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError

TABLE = pa.table({"user": ["a", "b", "c"], "n": [1, 2, 3]})


def test_only_the_wanted_columns_are_read_and_the_position_does_not_hang_on_them() -> None:
    whole = TableSource(TABLE)
    source = whole.project(frozenset({"n"}))
    reader = source.open_reader(ReaderContext("job", "rows", 0, 1, ManualClock(), with_origin=True))
    reader.add_splits(source.open_enumerator("job", ManualClock()).initial_splits())
    fetch = reader.poll(0, 2)
    assert fetch is not None
    assert fetch.records.to_pydict() == {"n": [1, 2]}
    assert fetch.offset is not None
    assert fetch.offset.tolist() == [0, 1]
    assert list(reader.snapshot()) == [whole.position(2)]


def test_a_subtask_without_the_split_reads_nothing() -> None:
    reader = TableSource(TABLE).open_reader(ReaderContext("job", "rows", 1, 1, ManualClock()))
    reader.add_splits([])
    assert reader.poll(0, 10) is None
    assert reader.snapshot() == []


def test_no_rows_are_read_to_their_end() -> None:
    reader = TableSource(TABLE.slice(0, 0)).open_reader(ReaderContext("job", "rows", 0, 1, ManualClock()))
    reader.add_splits([SplitState("rows", {"next_row": 0, "last": ""})])
    fetch = reader.poll(0, 10)
    assert fetch is not None
    assert (fetch.records.num_rows, fetch.finished) == (0, frozenset({"rows"}))
    assert reader.poll(0, 10) is None


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (TABLE.slice(0, 1), "2 records of the program were read before the restart, and now it has 1"),
        (pa.table({"user": ["a", "x", "c"], "n": [1, 2, 3]}), "record 2 of the program is not the one"),
    ],
)
def test_a_program_with_other_rows_is_refused(now: pa.Table, sentence: str) -> None:
    at_two = TableSource(TABLE).position(2)
    TableSource(TABLE).open_enumerator("job", ManualClock()).check_restored([at_two])
    with pytest.raises(DataLossError, match=sentence):
        TableSource(now).open_enumerator("job", ManualClock()).check_restored([at_two])
    reader = TableSource(now).open_reader(ReaderContext("job", "rows", 0, 1, ManualClock()))
    with pytest.raises(DataLossError, match=sentence):  # of a split that was read to its end
        reader.add_splits([at_two])
