"""What every reader must do that can leave splits unread for a while (PausableReader).

The source under test is bounded and has two splits or more with rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from onceflow.runtime.contracts import PausableReader, PausableSource, Source, SourceReader
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.checking import DEADLINE_S, polled
from onceflow.runtime.testing.conformance.sources import initial_splits, open_reader, read


@quotations.of(PausableReader.pause_splits, "Bring no rows of these")
def a_paused_split_brings_nothing_until_it_is_resumed(source: Source) -> None:
    splits = initial_splits(source)
    whole, _, _ = read(open_reader(source), splits)
    paused = {splits[0].split_id}
    reader = open_reader(source)
    assert isinstance(reader, PausableReader)
    reader.add_splits(splits)
    reader.pause_splits(paused)
    reader.pause_splits(paused)
    others = {split.split_id for split in splits} - paused
    rows = read_until_finished(reader, others, untouched=paused)
    assert {s.split_id: s.position for s in reader.snapshot()}[splits[0].split_id] == splits[0].position
    reader.resume_splits(paused)
    assert rows + read_until_finished(reader, paused, untouched=set()) == whole
    reader.close()


@quotations.of(PausableReader.resume_splits, "Go on with these exactly where they were.")
def each_split_may_be_paused_between_any_two_polls(source: Source) -> None:
    """They take turns: after each poll another one is paused."""
    splits = initial_splits(source)
    whole, _, _ = read(open_reader(source), splits)
    reader = open_reader(source)
    assert isinstance(reader, PausableReader)
    reader.add_splits(splits)
    left, rows = [split.split_id for split in splits], Counter[str]()
    deadline = time.monotonic() + DEADLINE_S
    while left:
        assert time.monotonic() < deadline, f"not finished: {left}"
        reader.pause_splits(left[:-1])
        fetch = polled(reader, 1)
        reader.resume_splits(left[:-1])
        if fetch is not None:
            rows.update(repr(row) for row in fetch.records.to_pylist())
            left = [split for split in (left[-1], *left[:-1]) if split not in fetch.finished]
    assert rows == whole
    reader.close()


@quotations.of(PausableSource, "A source whose readers can leave splits unread")
def who_says_that_its_readers_pause_has_such(source: Source) -> None:
    if not (isinstance(source, PausableSource) and source.can_pause):
        return
    reader = open_reader(source)
    reader.close()
    assert isinstance(reader, PausableReader), f"can_pause, and {type(reader).__name__} has no pause_splits"


PAUSING_CHECKS: Sequence[Callable[[Source], None]] = (
    a_paused_split_brings_nothing_until_it_is_resumed,
    each_split_may_be_paused_between_any_two_polls,
    who_says_that_its_readers_pause_has_such,
)


def read_until_finished(reader: SourceReader, splits: set[str], untouched: set[str]) -> Counter[str]:
    """Rows until these have finished; of the untouched ones nothing may be heard."""
    rows: Counter[str] = Counter()
    finished: set[str] = set()
    deadline = time.monotonic() + DEADLINE_S
    while splits - finished:
        assert time.monotonic() < deadline, f"not finished: {splits - finished}"
        fetch = polled(reader, 7)
        if fetch is None:
            continue
        heard = {fetch.splits[index] for index in set(fetch.row_split.tolist())}
        heard = (heard | fetch.at_end | fetch.finished) & untouched
        assert not heard, f"{heard} are paused"
        finished |= fetch.finished
        rows.update(repr(row) for row in fetch.records.to_pylist())
    return rows
