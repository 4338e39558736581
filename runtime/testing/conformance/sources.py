"""What every Source must do. The source under test is bounded and has some rows in at least one split."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext, Source, SourceReader, SplitState
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.checking import DEADLINE_S, polled, through_json

ASKED = (1_000, 1, 7)
"""The numbers of records that a source is polled for, in turn."""


@quotations.of(SplitState, "`split_id` is unique within the source and stable for ever")
def splits_are_named_once_and_are_json(source: Source) -> None:
    enumerator = source.open_enumerator("conformance", SystemClock())
    splits = enumerator.initial_splits()
    ids = [split.split_id for split in splits]
    assert len(ids) == len(set(ids)), f"split ids are there twice: {ids}"
    for split in splits:
        read_back = through_json(split)
        same = read_back == SplitState(split.split_id, dict(split.position))
        assert same, f"the position of {split.split_id} is {split.position}, and as JSON {read_back.position}"
    again = {s.split_id for s in enumerator.discover(frozenset(ids))} & set(ids)
    assert not again, f"discover() brings splits that are known: {sorted(again)}"
    enumerator.check_restored(splits)
    enumerator.close()


@quotations.of(Fetch, "bounded splits read up to their bound; they will not be seen again.")
def every_split_is_read_to_its_end(source: Source) -> None:
    splits = initial_splits(source)
    rows, finished, _ = read(open_reader(source), splits)
    assert sum(rows.values()) > 0, "conformance needs a source with rows"
    assert finished == {split.split_id for split in splits}, f"only {sorted(finished)} have finished"


@quotations.of(SourceReader.snapshot, "after exactly the rows that poll returned")
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
        lost, more = whole - before - after, before + after - whole
        assert not lost, f"read on from the snapshot after {cut} polls, and lost are {dict(lost)}"
        assert not more, f"read on from the snapshot after {cut} polls, and doubled are {dict(more)}"
        assert finished == {split.split_id for split in splits}, f"only {sorted(finished)} have finished"


@quotations.of(SourceReader.add_splits, "each exactly from its position. At start and while running.")
def splits_may_be_added_one_by_one(source: Source) -> None:
    splits = initial_splits(source)
    whole, _, _ = read(open_reader(source), splits)
    reader = open_reader(source)
    rows: Counter[str] = Counter()
    for split in splits:
        part, _, _ = read(reader, [split], is_closed=False)
        rows += part
    reader.close()
    assert rows == whole, f"lost are {dict(whole - rows)}, and doubled are {dict(rows - whole)}"


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
        fetch = polled(reader, asked)
        if fetch is None:
            continue
        polls += 1
        assert fetch.records.num_rows <= asked, f"{asked} records were asked for, and more came"
        count, of = fetch.records.num_rows, fetch.row_split
        assert len(of) == count, f"{count} rows, and row_split has {len(of)}"
        assert not len(of) or int(of.max()) < len(fetch.splits), f"row_split names split {int(of.max())}"
        assert not finished & fetch.finished, "a split finishes once"
        finished |= fetch.finished
        rows.update(repr(row) for row in fetch.records.to_pylist())
    if is_closed:
        reader.close()
    return rows, finished, polls
