"""What every reader must do that acknowledges what it has read (AcknowledgingReader)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from onceflow.runtime.contracts import AcknowledgingReader, Source, SourceReader, SplitState
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.checking import DEADLINE_S, polled, through_json
from onceflow.runtime.testing.conformance.sources import initial_splits, open_reader, read


@dataclass(frozen=True)
class QueueUnderTest:
    """A bounded source over a fresh queue with three messages or more. `waiting()`: how many messages the
    queue would still deliver to somebody who has read nothing."""

    source: Source
    waiting: Callable[[], int]


@quotations.of(AcknowledgingReader.on_completed, "acknowledge what is part of it.")
def nothing_is_acknowledged_before_its_checkpoint_is_complete(case: QueueUnderTest) -> None:
    count = case.waiting()
    assert count > 2, "conformance needs messages"
    reader = open_reader(case.source)
    assert isinstance(reader, AcknowledgingReader)
    read(reader, initial_splits(case.source), is_closed=False)
    barrier(reader, 1)
    assert case.waiting() == count
    reader.on_completed(1)
    assert case.waiting() == 0
    barrier(reader, 2)
    reader.on_completed(2)
    reader.close()


@quotations.of(AcknowledgingReader.on_barrier, "what `poll` has brought so far is part of this checkpoint")
def what_is_read_after_the_barrier_is_not_acknowledged(case: QueueUnderTest) -> None:
    count = case.waiting()
    reader, rows = read_some(case, initial_splits(case.source))
    barrier(reader, 1)
    more = read_rest(reader)
    acknowledging(reader).on_completed(1)
    assert case.waiting() == count - rows.total() == more.total()
    reader.close()


@quotations.of(AcknowledgingReader.on_barrier, "and of the next one too, should this one be aborted.")
def an_aborted_checkpoint_is_acknowledged_with_the_next(case: QueueUnderTest) -> None:
    reader, _ = read_some(case, initial_splits(case.source))
    barrier(reader, 1)
    read_rest(reader)
    barrier(reader, 2)
    acknowledging(reader).on_completed(2)
    assert case.waiting() == 0
    reader.close()


@quotations.of(AcknowledgingReader, "the reader leaves out what the restored checkpoint already counts.")
def what_comes_again_is_left_out_and_acknowledged(case: QueueUnderTest) -> None:
    """The slot dies after the checkpoint and before the acknowledgement."""
    first, before = read_some(case, initial_splits(case.source))
    position = barrier(first, 1)
    first.close()
    second = open_reader(case.source)
    after, _, _ = read(second, position, is_closed=False)
    assert not before & after, "read a second time"
    assert (before + after).total() == case.waiting()
    barrier(second, 2)
    acknowledging(second).on_completed(2)
    assert case.waiting() == 0
    second.close()


@quotations.of(AcknowledgingReader, "A reader of what is delivered again until it is acknowledged: a queue.")
def what_was_read_without_a_checkpoint_comes_again(case: QueueUnderTest) -> None:
    splits = initial_splits(case.source)
    first, before = read_some(case, splits)
    first.close()
    again, _, _ = read(open_reader(case.source), splits)
    assert before <= again
    assert again.total() == case.waiting()


ACKNOWLEDGING_CHECKS: Sequence[Callable[[QueueUnderTest], None]] = (
    nothing_is_acknowledged_before_its_checkpoint_is_complete,
    what_is_read_after_the_barrier_is_not_acknowledged,
    an_aborted_checkpoint_is_acknowledged_with_the_next,
    what_comes_again_is_left_out_and_acknowledged,
    what_was_read_without_a_checkpoint_comes_again,
)


def barrier(reader: SourceReader, checkpoint_id: int) -> list[SplitState]:
    """What the engine does at a barrier; the position as it comes back from a manifest."""
    acknowledging(reader).on_barrier(checkpoint_id)
    return [through_json(split) for split in reader.snapshot()]


def acknowledging(reader: SourceReader) -> AcknowledgingReader:
    assert isinstance(reader, AcknowledgingReader)
    return cast(AcknowledgingReader, reader)


def read_some(case: QueueUnderTest, splits: Sequence[SplitState]) -> tuple[SourceReader, Counter[str]]:
    """One poll that brings something, but not all."""
    reader = open_reader(case.source)
    reader.add_splits(splits)
    fetch = None
    while fetch is None or not fetch.records.num_rows:
        fetch = polled(reader, 1)
    return reader, Counter(repr(row) for row in fetch.records.to_pylist())


def read_rest(reader: SourceReader) -> Counter[str]:
    """All that its splits still have: they are bounded."""
    rows: Counter[str] = Counter()
    open_splits = {split.split_id for split in reader.snapshot()}
    deadline = time.monotonic() + DEADLINE_S
    while open_splits:
        assert time.monotonic() < deadline, f"not finished after {DEADLINE_S} s: {open_splits}"
        if (fetch := polled(reader, 1_000)) is not None:
            rows.update(repr(row) for row in fetch.records.to_pylist())
            open_splits -= fetch.finished
    return rows
