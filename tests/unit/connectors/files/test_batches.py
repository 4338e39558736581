"""FilePlanner: each record of each file is in one batch, and a batch is the same however often it is read."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.connectors.files import JsonLines
from onceflow.connectors.files.source import FileSource, files_source
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import BatchedSource, BatchLimit, BatchPlanner, Json, SplitState
from onceflow.runtime.errors import DataLossError
from onceflow.structured_streaming.any_source.batch_reading import RowShape, read_splits

SCHEMA = pa.schema([("n", pa.int64())])
OLD_S = 1_000_000_000


def write(folder: Path, name: str, numbers: Sequence[int]) -> None:
    """A file that nobody writes any more, older than those that come after it."""
    path = folder / name
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    age = OLD_S + len(list(folder.iterdir()))
    os.utime(path, (age, age))


def source_of(folder: Path, split_size: str | None = None) -> FileSource:
    return files_source(str(folder), SCHEMA, JsonLines(split_size=split_size), watch="1 s")


def planner_of(source: FileSource, **limit: int) -> BatchPlanner:
    assert isinstance(source, BatchedSource)
    return source.open_planner(SystemClock(), BatchLimit(**limit))


def stored(place: Json) -> Json:
    """The place that comes back from Spark's checkpoint."""
    return json.loads(json.dumps(place))


def read(source: FileSource, tasks: Sequence[Sequence[SplitState]]) -> list[int]:
    batches = [batch for task in tasks for batch in read_splits(source, task, RowShape(SCHEMA))]
    return [n for batch in batches for n in batch.column("n").to_pylist()]


Step = tuple[str, int]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "next", "again", "restart"]), st.integers(0, 12)), max_size=14
    ),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 1, 40]),
    st.sampled_from([None, "20 B"]),
)
@example([("write", 9), ("write", 3), ("next", 0), ("restart", 0), ("next", 0), ("again", 0)], 1, 40, "20 B")
def test_each_record_is_in_one_batch_whatever_is_asked_again(
    steps: Sequence[Step], splits: int | None, size: int | None, split_size: str | None
) -> None:
    limit: dict[str, Any] = {name: value for name, value in (("splits", splits), ("bytes", size)) if value}
    with tempfile.TemporaryDirectory() as name:
        folder, written, seen = Path(name), list[int](), list[int]()
        source = source_of(folder, split_size)
        planner = planner_of(source, **limit)
        place = begin = planner.first()
        for step, count in (*steps, *[("next", 0)] * 40):
            if step == "write":
                numbers = range(len(written), len(written) + count)
                write(folder, f"{len(written):05}-{count}-{len(list(folder.iterdir()))}.jsonl", numbers)
                written.extend(numbers)
            elif step == "restart":
                planner = planner_of(source, **limit)
            elif step == "again":
                last = len(read(source, planner.tasks(begin, place))) if begin != place else 0
                assert seen[len(seen) - last :] == read(source, planner.tasks(begin, place))
            else:
                end = stored(planner.next(place))
                if end != place:
                    begin, place = place, end
                    seen += read(source, planner.tasks(begin, place))
        assert seen == written
        assert planner.next(place) == place


def test_a_batch_has_as_much_as_the_limit_says_and_at_least_one_piece(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, f"{number}.jsonl", range(10 * number, 10 * number + 10))
    source = source_of(tmp_path, "30 B")
    whole = planner_of(source)
    assert read(source, whole.tasks(None, whole.next(whole.first()))) == list(range(30))
    small = planner_of(source, bytes=1)
    place = small.next(small.first())
    assert 0 < len(read(source, small.tasks(None, place))) < 10
    two = planner_of(source, splits=2)
    assert read(source, two.tasks(None, two.next(two.first()))) == list(range(20))


def test_what_comes_after_it_was_held_is_left(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", [1])
    (tmp_path / "b.jsonl").write_text('{"n": 2}\n')  # just now: it is waited for
    source = source_of(tmp_path)
    planner = planner_of(source)
    planner.hold()
    write(tmp_path, "c.jsonl", [3])
    place = planner.next(planner.first())
    assert sorted(read(source, planner.tasks(None, place))) == [1, 2]
    assert planner.next(place) == place


def test_a_file_that_changes_after_it_was_planned_or_read_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", [1])
    source = source_of(tmp_path)
    planner = planner_of(source)
    first = planner.first()
    place = planner.next(first)
    write(tmp_path, "a.jsonl", [1, 2])
    with pytest.raises(DataLossError, match=r"a\.jsonl was changed since it was found"):
        read(source, planner.tasks(first, place))
    after = planner.next(place)
    assert after != place
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(DataLossError, match=r"a\.jsonl is gone"):
        read(source, planner.tasks(first, place))


def test_small_splits_are_read_by_one_task(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.jsonl", [number])
    planner = planner_of(source_of(tmp_path))
    place = planner.next(planner.first())
    assert [len(task) for task in planner.tasks(None, place)] == [5]
    assert planner.tasks(place, place) == []
