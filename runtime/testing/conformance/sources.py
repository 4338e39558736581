"""What every Source must do. The source under test is bounded and has some rows in at least one split."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import ReaderContext, Source, SourceReader, SplitState
from onceflow.runtime.testing.conformance.checking import DEADLINE_S, through_json

ASKED = (1_000, 1, 7)
"""The numbers of records that a source is polled for, in turn."""


def splits_are_named_once_and_are_json(source: Source) -> None:
    enumerator = source.open_enumerator("conformance", SystemClock())
    splits = enumerator.initial_splits()
    ids = [split.split_id for split in splits]
    assert len(ids) == len(set(ids)), ids
    assert [through_json(split) for split in splits] == [
        SplitState(s.split_id, dict(s.position)) for s in splits
    ]
    assert not {s.split_id for s in enumerator.discover(frozenset(ids))} & set(ids)
    enumerator.check_restored(splits)
    enumerator.close()


def every_split_is_read_to_its_end(source: Source) -> None:
    splits = initial_splits(source)
    rows, finished, _ = read(open_reader(source), splits)
    assert sum(rows.values()) > 0, "conformance needs a source with rows"
    assert finished == {split.split_id for split in splits}


def reading_goes_on_exactly_from_every_snapshot(source: Source) -> None:
    """After each poll: snapshot, through JSON, a new reader; both parts together are the whole, once."""
    splits = initial_splits(source)
    whole, _, polls = read(open_reader(source), splits)
    for cut in range(polls + 1):
        reader = open_reader(source)
        before, _, _ = read(reader, splits, polls_max=cut, is_closed=False)
        position = [through_json(split) for split in reader.snapshot()]
        reader.close()
        assert {s.split_id for s in position} == {s.split_id for s in splits}, "a snapshot has all splits"
        after, finished, _ = read(open_reader(source), position)
        assert before + after == whole, f"after {cut} polls: lost or doubled {whole - before - after}"
        assert finished == {split.split_id for split in splits}


def splits_may_be_added_one_by_one(source: Source) -> None:
    splits = initial_splits(source)
    whole, _, _ = read(open_reader(source), splits)
    reader = open_reader(source)
    rows: Counter[str] = Counter()
    for split in splits:
        part, _, _ = read(reader, [split], is_closed=False)
        rows += part
    reader.close()
    assert rows == whole


SOURCE_CHECKS: Sequence[Callable[[Source], None]] = (
    splits_are_named_once_and_are_json,
    every_split_is_read_to_its_end,
    reading_goes_on_exactly_from_every_snapshot,
    splits_may_be_added_one_by_one,
)


def initial_splits(source: Source) -> Sequence[SplitState]:
    enumerator = source.open_enumerator("conformance", SystemClock())
    splits = enumerator.initial_splits()
    enumerator.close()
    return splits


def open_reader(source: Source) -> SourceReader:
    return source.open_reader(ReaderContext("conformance", "source", 0, 1, SystemClock()))


def read(
    reader: SourceReader, splits: Sequence[SplitState], polls_max: int | None = None, is_closed: bool = True
) -> tuple[Counter[str], set[str], int]:
    """Rows as text, finished splits and polls that brought something, until all splits are finished."""
    reader.add_splits(splits)
    open_splits = {split.split_id for split in splits}
    rows: Counter[str] = Counter()
    finished: set[str] = set()
    polls = 0
    deadline = time.monotonic() + DEADLINE_S
    while open_splits - finished and (polls_max is None or polls < polls_max):
        assert time.monotonic() < deadline, f"not finished after {DEADLINE_S} s: {open_splits - finished}"
        asked = ASKED[polls % len(ASKED)]
        fetch = reader.poll(100, asked)
        if fetch is None:
            continue
        polls += 1
        assert fetch.records.num_rows <= asked, "no more than were asked for"
        assert len(fetch.row_split) == fetch.records.num_rows
        assert not len(fetch.row_split) or int(fetch.row_split.max()) < len(fetch.splits)
        assert not finished & fetch.finished, "a split finishes once"
        finished |= fetch.finished
        rows.update(repr(row) for row in fetch.records.to_pylist())
    if is_closed:
        reader.close()
    return rows, finished, polls
