"""HybridReader: the rows of the sources in turn, and snapshots that have all that is to come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.hybrid.reader import HybridReader
from onceflow.connectors.hybrid.stages import outer, then_of
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext, SourceReader, SplitState
from onceflow.runtime.errors import Fatal
from onceflow.runtime.testing.connectors.folder_source import FolderSource, add_file

HISTORY = pa.schema([("n", pa.int64()), ("user", pa.string())])
LIVE = pa.schema([pa.field("user", pa.string(), nullable=False), pa.field("n", pa.int64())])


class Opened:
    """A reader over two folders, and what was opened."""

    def __init__(self, path: Path, **context: Any) -> None:
        self.sources = [FolderSource(str(path / name), LIVE, is_bounded=True) for name in ("a", "b")]
        for source in self.sources:
            Path(source.path).mkdir()
            add_file(Path(source.path), 1, [{"n": 1, "user": source.path[-1]}] * 2)
        self.inner: list[SourceReader] = []
        schema = pa.schema([LIVE.field("user").with_nullable(True), LIVE.field("n")])
        self.reader = HybridReader(
            self.open, schema, ReaderContext("job", "both", 0, 1, SystemClock(), **context)
        )

    def open(self, number: int, context: ReaderContext) -> SourceReader:
        self.inner.append(self.sources[number].open_reader(context))
        return self.inner[-1]

    def splits(self, number: int) -> list[SplitState]:
        enumerator = self.sources[number].open_enumerator("job", SystemClock())
        then = [["later", {}]] if number == 0 else None
        return [outer(number, split, then) for split in enumerator.initial_splits()]

    def read(self) -> tuple[list[str], frozenset[str]]:
        users: list[str] = []
        finished: frozenset[str] = frozenset()
        while (fetch := self.reader.poll(0, 1)) is not None:
            assert {fetch.splits[i].partition("/")[0] for i in fetch.row_split} <= {"0", "1"}
            assert fetch.records.schema.field("user").nullable
            users += fetch.records["user"].to_pylist()
            finished |= fetch.finished
        return users, finished


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path)


def test_the_first_is_read_before_the_second(opened: Opened) -> None:
    opened.reader.add_splits(opened.splits(1))
    opened.reader.add_splits(opened.splits(0))
    users, finished = opened.read()
    assert users == ["a", "a", "b", "b"]
    assert finished == {split.split_id for number in (0, 1) for split in opened.splits(number)}
    assert opened.reader.poll(0, 10) is None


def test_what_comes_later_stays_in_every_snapshot(opened: Opened) -> None:
    opened.reader.add_splits(opened.splits(0))
    for _ in range(3):
        (split,) = opened.reader.snapshot()
        assert then_of(split) == [["later", {}]]
        opened.reader.poll(0, 1)


def test_a_reader_is_closed_when_its_last_split_is_forgotten(opened: Opened) -> None:
    for number in (0, 1):
        opened.reader.add_splits(opened.splits(number))
    opened.read()
    opened.reader.forget_splits([split.split_id for split in opened.splits(0)])
    assert [split.split_id for split in opened.reader.snapshot()] == [s.split_id for s in opened.splits(1)]
    assert opened.reader.poll(0, 1) is None
    opened.reader.close()


def test_records_without_a_timestamp_are_refused_where_it_is_the_event_time(tmp_path: Path) -> None:
    opened = Opened(tmp_path, with_timestamp=True)
    opened.reader.add_splits(opened.splits(0))
    with pytest.raises(Fatal, match=r"source number 1 don't have: give event_time= a column"):
        opened.reader.poll(0, 1)


def test_what_a_source_says_of_its_splits_is_said_of_them_here(opened: Opened) -> None:
    class Saying:
        """A reader that says everything that can be said of a split."""

        def add_splits(self, splits: object) -> None: ...

        def poll(self, timeout_ms: int, records_max: int) -> Fetch:
            rows = pa.record_batch({"user": ["x"], "n": [1]})
            return Fetch(
                rows,
                np.zeros(1, np.uint16),
                ("p-0",),
                np.array([7]),
                at_end=frozenset({"p-0"}),
                watermarks={"p-0": 5},
            )

    reading: Any = Saying()
    schema = pa.schema([("n", pa.int64()), ("user", pa.string())])
    context = ReaderContext("job", "both", 0, 1, SystemClock())
    reader = HybridReader(lambda number, context: reading, schema, context)
    reader.add_splits([outer(1, SplitState("p-0", {}))])
    fetch = reader.poll(0, 1)
    assert fetch is not None
    assert (fetch.splits, fetch.at_end, fetch.watermarks) == (("1/p-0",), {"1/p-0"}, {"1/p-0": 5})
    assert fetch.records.to_pylist() == [{"n": 1, "user": "x"}]
