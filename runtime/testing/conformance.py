"""The suites that every CheckpointStore, Source, Sink and keyed operator must pass.

Each check is a function of the thing under test and fails by an assertion, so any test runner will do:

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    def test_store(check, tmp_path):
        check(LocalStore(str(tmp_path)))
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import (
    Committable,
    ReaderContext,
    SinkWriter,
    Source,
    SourceReader,
    SplitState,
)
from onceflow.runtime.errors import Fenced
from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import OperatorHarness

DEADLINE_S = 30.0
ASKED = (1_000, 1, 7)
"""The numbers of records that a source is polled for, in turn."""

# --- CheckpointStore --------------------------------------------------------------------------------


def create_makes_a_file_that_is_there_at_once(store: CheckpointStore) -> None:
    store.create("log/0.json", b"one")
    assert store.read("log/0.json") == b"one"
    assert [(s.path, s.size) for s in store.list("log")] == [("log/0.json", 3)]


def create_never_replaces(store: CheckpointStore) -> None:
    store.create("log/0.json", b"one")
    for content in (b"two", b"one", b""):
        assert raises(AlreadyExists, lambda c=content: store.create("log/0.json", c))  # type: ignore[misc]
    assert store.read("log/0.json") == b"one"
    store.delete(["log/0.json"])
    store.create("log/0.json", b"three")


def of_many_creators_one_wins(store: CheckpointStore) -> None:
    """Thirty positions, eight threads at once for each."""
    with ThreadPoolExecutor(8) as pool:
        for position in range(30):
            path = f"log/{position}.json"
            start = threading.Barrier(8)

            def attempt(number: int, path: str = path, start: threading.Barrier = start) -> bool:
                start.wait()
                return not raises(AlreadyExists, lambda: store.create(path, f"writer {number}".encode()))

            won = [number for number, has_won in enumerate(pool.map(attempt, range(8))) if has_won]
            assert len(won) == 1, f"{path} was created by {won}"
            assert store.read(path) == f"writer {won[0]}".encode()


def nobody_sees_half_a_file(store: CheckpointStore) -> None:
    """A reader looks all the time while large files are created."""
    content = bytes(range(256)) * 8_192
    over = threading.Event()
    seen: list[int] = []

    def look() -> None:
        position = 0
        while position < 10:
            was_over = over.is_set()
            try:
                seen.append(len(store.read(f"log/{position}.json")))
                position += 1
            except FileNotFoundError:
                if was_over:
                    return

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        for position in range(10):
            store.create(f"log/{position}.json", content)
        over.set()
        looking.result(DEADLINE_S)
    assert seen == [len(content)] * 10


def a_file_is_written_once_and_read_in_parts(store: CheckpointStore) -> None:
    with store.create_file("state/a/x.arrows") as file:
        assert file.write(b"0123456789") == 10
        assert file.tell() == 10
    with store.open("state/a/x.arrows") as file:
        file.seek(4)
        assert file.read(3) == b"456"
    assert raises(AlreadyExists, lambda: store.create_file("state/a/x.arrows"))


def a_listing_is_deep_and_relative(store: CheckpointStore) -> None:
    for path in ("state/a/1", "state/b/c/2", "state2/3", "log/4"):
        store.create(path, path.encode())
    assert sorted(s.path for s in store.list("state")) == ["state/a/1", "state/b/c/2"]
    assert store.list("nothing") == []


def what_is_not_there_is_not_found(store: CheckpointStore) -> None:
    assert raises(FileNotFoundError, lambda: store.read("log/9.json"))
    assert raises(FileNotFoundError, lambda: store.open("log/9.json"))
    store.delete(["log/9.json"])


def names_may_hold_what_uids_hold(store: CheckpointStore) -> None:
    names = ["a b", "ä€", "100%", "x%2Fy", "=,;'"]
    for name in names:
        store.create(f"state/{name}", name.encode())
    assert sorted(s.path for s in store.list("state")) == sorted(f"state/{name}" for name in names)
    assert all(store.read(f"state/{name}") == name.encode() for name in names)


STORE_CHECKS: Sequence[Callable[[CheckpointStore], None]] = (
    create_makes_a_file_that_is_there_at_once,
    create_never_replaces,
    of_many_creators_one_wins,
    nobody_sees_half_a_file,
    a_file_is_written_once_and_read_in_parts,
    a_listing_is_deep_and_relative,
    what_is_not_there_is_not_found,
    names_may_hold_what_uids_hold,
)

# --- Source -----------------------------------------------------------------------------------------
# Of a bounded source with some rows in at least one split.


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


# --- Sink -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SinkUnderTest:
    """A sink's writers with a fresh output. `open_writer(subtask, parallelism, attempt, restored
    checkpoint id)`; `records(n)`: a batch of one row that only n has; `visible()`: the rows that a
    careful reader sees, as those n."""

    open_writer: Callable[[int, int, int, int], SinkWriter]
    records: Callable[[int], Records]
    visible: Callable[[], Sequence[int]]


def nothing_is_visible_before_the_commit(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [1, 2])
    assert case.visible() == []
    writer.commit(1)
    assert sorted(case.visible()) == [1, 2]


def commit_may_be_told_twice(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [1])
    writer.commit(1)
    writer.commit(1)
    promise(writer, case, 2, [2])
    writer.commit(2)
    assert sorted(case.visible()) == [1, 2]


def an_empty_checkpoint_is_none_the_worse(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [])
    writer.commit(1)
    promise(writer, case, 2, [2])
    writer.commit(2)
    assert case.visible() == [2]


def output_of_an_aborted_checkpoint_is_part_of_the_next(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [1])
    promise(writer, case, 2, [2])
    writer.commit(2)
    assert sorted(case.visible()) == [1, 2]


def rows_after_the_barrier_belong_to_the_next_checkpoint(case: SinkUnderTest) -> None:
    writer = started(case)
    promise(writer, case, 1, [1])
    writer.write(case.records(2))
    writer.commit(1)
    assert case.visible() == [1]
    promise(writer, case, 2, [])
    writer.commit(2)
    assert sorted(case.visible()) == [1, 2]


def recovery_commits_what_was_promised_once(case: SinkUnderTest) -> None:
    """The writer dies between the promise and its commit; and again after the commit."""
    committable = promise(started(case), case, 1, [1, 2])
    for attempt in (2, 3):
        writer = case.open_writer(0, 1, attempt, 1)
        writer.recover([through_json_committable(committable)])
        assert sorted(case.visible()) == [1, 2]
    promise(writer, case, 2, [3])
    writer.commit(2)
    assert sorted(case.visible()) == [1, 2, 3]


def recovery_after_the_commit_changes_nothing(case: SinkUnderTest) -> None:
    writer = started(case)
    committable = promise(writer, case, 1, [1])
    writer.commit(1)
    case.open_writer(0, 1, 2, 1).recover([through_json_committable(committable)])
    assert case.visible() == [1]


def an_older_attempt_can_not_commit_any_more(case: SinkUnderTest) -> None:
    """It may commit what the newer one has committed too, or be fenced; it adds nothing."""
    zombie = started(case)
    committable = promise(zombie, case, 1, [1])
    newer = case.open_writer(0, 1, 2, 1)
    newer.recover([through_json_committable(committable)])
    zombie.write(case.records(9))
    zombie.pre_commit(2)
    raises(Fenced, lambda: zombie.commit(1))
    raises(Fenced, lambda: zombie.commit(2))
    assert case.visible() == [1]


def another_parallelism_commits_for_the_owners_of_before(case: SinkUnderTest) -> None:
    before = [case.open_writer(n, 2, 1, 0) for n in range(2)]
    for writer in before:
        writer.recover([])
    committables = [promise(writer, case, 1, [n]) for n, writer in enumerate(before)]
    only = case.open_writer(0, 1, 2, 1)
    only.recover([through_json_committable(c) for c in committables])
    assert sorted(case.visible()) == [0, 1]
    promise(only, case, 2, [5])
    only.commit(2)
    assert sorted(case.visible()) == [0, 1, 5]


SINK_CHECKS: Sequence[Callable[[SinkUnderTest], None]] = (
    nothing_is_visible_before_the_commit,
    commit_may_be_told_twice,
    an_empty_checkpoint_is_none_the_worse,
    output_of_an_aborted_checkpoint_is_part_of_the_next,
    rows_after_the_barrier_belong_to_the_next_checkpoint,
    recovery_commits_what_was_promised_once,
    recovery_after_the_commit_changes_nothing,
    an_older_attempt_can_not_commit_any_more,
    another_parallelism_commits_for_the_owners_of_before,
)


def started(case: SinkUnderTest) -> SinkWriter:
    writer = case.open_writer(0, 1, 1, 0)
    writer.recover([])
    return writer


def promise(writer: SinkWriter, case: SinkUnderTest, checkpoint_id: int, rows: Sequence[int]) -> Committable:
    """Write these rows and pre-commit them."""
    for n in rows:
        writer.write(case.records(n))
    return writer.pre_commit(checkpoint_id).stage()


# --- Keyed operators --------------------------------------------------------------------------------


@dataclass(frozen=True)
class OperatorUnderTest:
    """A keyed operator, batches for it with their event times, and the watermark after each."""

    create: Callable[[], Operator]
    key_columns: Sequence[str]
    steps: Sequence[tuple[pa.RecordBatch, Sequence[int], int]]
    max_parallelism: int = 8


def restored_at_any_parallelism_it_goes_on_as_if_nothing_had_been(case: OperatorUnderTest) -> None:
    """Cut after every step, restored at 1, 2, 3 and all: the output equals that of a run without a cut."""
    expected = run_steps(case, OperatorHarness(case.create, case.key_columns, 1, case.max_parallelism), 0)
    for cut in range(len(case.steps) + 1):
        for before, after in ((1, 2), (2, 1), (2, 3), (3, case.max_parallelism), (1, 1)):
            first = OperatorHarness(case.create, case.key_columns, before, case.max_parallelism)
            rows = run_steps(case, first, 0, cut)
            second = OperatorHarness(
                case.create, case.key_columns, after, case.max_parallelism, states=first.snapshot()
            )
            rows += run_steps(case, second, cut)
            assert rows == expected, f"cut at {cut}, from {before} to {after}: {rows} not {expected}"


OPERATOR_CHECKS: Sequence[Callable[[OperatorUnderTest], None]] = (
    restored_at_any_parallelism_it_goes_on_as_if_nothing_had_been,
)


def run_steps(
    case: OperatorUnderTest, harness: OperatorHarness, first: int, end: int | None = None
) -> Counter[str]:
    for batch, event_time, watermark_ms in case.steps[first:end]:
        harness.push(batch, event_time)
        harness.advance(watermark_ms)
    if end is None:
        harness.finish()
    return Counter(repr(row) for row in harness.rows())


# --- Shared -----------------------------------------------------------------------------------------


def raises(kind: type[BaseException], action: Callable[[], Any]) -> bool:
    """Whether it raised this; anything else passes through."""
    try:
        action()
    except kind:
        return True
    return False


def through_json(split: SplitState) -> SplitState:
    """The split as it comes back from a manifest."""
    return SplitState(split.split_id, json.loads(json.dumps(dict(split.position))))


def through_json_committable(committable: Committable) -> Committable:
    """The committable as it comes back from a manifest."""
    return Committable(**json.loads(json.dumps(asdict(committable))))
