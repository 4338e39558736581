"""An operator that is restored with other numbers of key groups does what one does that keeps its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.recovery import assign
from onceflow.runtime.checkpoint.savepoints import regrouping
from onceflow.runtime.checkpoint.savepoints.regrouping import Regrouping
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import Records
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.in_flight import frozen_in_flight
from onceflow.runtime.state.key_groups import key_group_range, key_groups_of
from onceflow.runtime.state.operator_state import RestoredState
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from tests.properties import test_keyed_process as process
from tests.properties import test_regular_join as join
from tests.properties import test_spans as spans

GROUPS = 8
JOIN = join.Case("full", None).config()


def regrouped(
    harness: OperatorHarness, before: int, after: int, described: StateDescription
) -> list[RestoredState]:
    """What the subtasks are restored from, through the files of a savepoint and of the job that begins."""
    store, handles = harness.written()
    manifest = CheckpointManifest(
        "job", "lineage", 1, 1, 0, 0, len(handles), before, handles, operators={"operator": described}
    )
    target = MemoryStore()
    copied = Regrouping(before, after).copied(store, target, manifest, 1)
    assert copied.max_parallelism == after
    return [StateFiles(target, 1).read(handle, handle.key_groups) for handle in copied.states]


class Pair:
    """An operator that is restored with the key groups that it has, and one that gets others."""

    def __init__(
        self, create: Any, keys: Sequence[str], right: Sequence[str], described: Any, state: StateBackend
    ) -> None:
        self._create, self._keys, self._right, self._described = create, keys, right, described
        self._state, self._groups = state, GROUPS
        self._plain = self._opened(2, GROUPS, None)
        self._other = self._opened(2, GROUPS, None)
        self.found: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def _opened(self, parallelism: int, groups: int, states: Any) -> OperatorHarness:
        return OperatorHarness(
            self._create, self._keys, parallelism, groups, states, right_keys=self._right, state=self._state
        )

    def do(self, what: Callable[[OperatorHarness], Any]) -> None:
        for each, found in zip((self._plain, self._other), self.found, strict=True):
            what(each)
            for tag, records in each.out.emitted:
                kinds = [0] * len(records) if records.kind is None else records.kind.tolist()
                times = [None] * len(records) if records.event_time is None else records.event_time.tolist()
                rows = zip(kinds, times, records.batch.to_pylist(), strict=True)
                found.update(f"{tag} {row}" for row in rows)
            found["late"] += each.late_rows
            each.out.emitted.clear()
            each.late_rows = 0

    def restore(self, parallelism: int, groups: int) -> None:
        plain = self._plain.snapshot()
        states = regrouped(self._other, self._groups, groups, self._described)
        self._plain.close()
        self._other.close()
        self._groups = groups
        self._plain = self._opened(parallelism, GROUPS, plain)
        self._other = self._opened(min(parallelism, groups), groups, states)

    def check(self) -> None:
        self.do(lambda each: each.finish())
        self._plain.close()
        self._other.close()
        assert self.found[0] == self.found[1]


RESTORE = st.tuples(st.just("restore"), st.tuples(st.integers(1, 3), st.integers(1, 12)))


# --- Windows: each key is held against the watermark of the subtask that it was in ---

ROWS = st.tuples(st.just("rows"), st.lists(spans.ROW, max_size=8))
WATERMARK = st.tuples(st.just("watermark"), st.integers(-50, 90))
OF_ONE = st.tuples(st.just("watermark of one"), st.tuples(st.integers(0, 1), st.integers(-50, 90)))
USERS = [f"u{n}" for n in range(40)]
MANY: list[Any] = [
    ("rows", [(5, user, 1, 5, "x") for user in USERS]),
    ("watermark of one", (1, 30)),
    ("restore", (2, 3)),
    ("rows", [(6, user, 2, 5, "y") for user in USERS]),
    ("restore", (3, 5)),
    ("rows", [(7, user, 4, 5, "z") for user in USERS]),
    ("restore", (1, 16)),
    ("rows", [(8, user, 8, 5, None) for user in USERS]),
]
"""Half of the keys are late, and where the border is between the halves is no border of key groups."""

SOME_FIRED: list[Any] = [
    ("rows", [(0, "a", None, 1, None), (1, None, None, 1, None)]),
    ("watermark", 0),
    ("restore", (1, 1)),
]
"""One file of a snapshot has a window that has fired, and so the column that says it; another has none."""


def check_windows(before: Any, after: Any, window: Any, firings: Firings, state: StateBackend) -> None:
    config = WindowAggregate(
        "w", ("user",), window, spans.AGGREGATES, spans.SCHEMA, late=True, firings=firings
    )
    pair, reached = Pair(config.create, ["user"], (), config.description, state), [spans.MIN_MS] * 2
    for kind, value in [*before, *after]:
        if kind == "rows":
            pair.do(lambda each, rows=value: each.push(spans.as_batch(rows), [row[0] for row in rows]))
        elif kind == "restore":
            pair.restore(*value)
            reached = [spans.MIN_MS] * 2
        elif kind == "watermark":
            reached = [max(value, *reached)] * 2
            pair.do(lambda each, time=reached[0]: each.advance(time))
        else:
            subtask, time = value
            reached[subtask] = max(reached[subtask], time)
            pair.do(lambda each, at=subtask, time=reached[subtask]: each.advance(time, at))
    pair.check()


WINDOWS = spans.SESSIONS | spans.FIXED
BEFORE = st.lists(ROWS | WATERMARK | OF_ONE, max_size=6)
AFTER = st.lists(ROWS | WATERMARK | RESTORE, max_size=8)


@settings(max_examples=25, deadline=None)
@given(BEFORE, AFTER, WINDOWS, spans.FIRINGS)
@example(MANY, [], Tumbling(10), Firings())
@example(MANY, [], Session(5), Firings(20, Results.RETRACTING))
def test_windows(before: Any, after: Any, window: Any, firings: Firings) -> None:
    check_windows(before, after, window, firings, UNLIMITED)


@settings(max_examples=10, deadline=None)
@given(BEFORE, AFTER, WINDOWS, spans.FIRINGS)
@example(MANY, [], Session(5), Firings(20, Results.RETRACTING))
@example([], SOME_FIRED, Session(1), Firings(1, Results.RETRACTING))
def test_windows_with_increments(before: Any, after: Any, window: Any, firings: Firings) -> None:
    check_windows(before, after, window, firings, INCREMENTAL)


@settings(max_examples=10, deadline=None)
@given(BEFORE, AFTER, WINDOWS, spans.FIRINGS)
@example(MANY, [], Session(5), Firings(20, Results.RETRACTING))
def test_windows_in_rocksdb(before: Any, after: Any, window: Any, firings: Firings) -> None:
    with tight_rocksdb() as state:
        check_windows(before, after, window, firings, state)


def as_of_now(self: Regrouping, handle: Any) -> Any:
    return handle.meta_json


def as_they_were(self: Regrouping, batch: pa.RecordBatch, state: Any) -> Any:
    groups = batch.column("key_group").to_numpy().astype(np.uint32)
    return (groups * self.after // self.before).astype(np.uint16)


_AS_META = Lateness.as_meta


def without_its_number(self: Lateness) -> Any:
    return {name: each for name, each in _AS_META(self).items() if name != "of_key_groups"}


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("notes are taken for those of the new key groups", [(Regrouping, "_meta", as_of_now)]),
        Mutant("rows move with their key group", [(Regrouping, "groups_of", as_they_were)]),
        Mutant("a later snapshot forgets the old borders", [(Lateness, "as_meta", without_its_number)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_state_in_the_wrong_place_is_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_windows(MANY, [], Tumbling(10), Firings(), UNLIMITED)


# --- Process functions and joins ---

PROGRAM: Any = [
    [process.Op(user, n % 2, "append", n, 10) for n, user in enumerate("abcüabcü")],
    [process.Op(user, 1, "timer", 5, 20) for user in "abcü"],
    ("restore", (2, 3)),
    [process.Op(user, n % 2, "show", 1, 15) for n, user in enumerate("abcüabcü")],
    22,
    ("restore", (3, 16)),
    [process.Op("a", 1, "show", 1, 15)],
]
OPS = st.lists(process.ops, min_size=1, max_size=12)


def check_process(program: Any, state: StateBackend) -> None:
    described = process.create()._config.description
    pair, reached = Pair(process.create, ["user", "shard"], (), described, state), 0
    for move in program:
        if isinstance(move, int):
            reached = max(reached, move)
            pair.do(lambda each, time=reached: each.advance(time))
        elif isinstance(move, list):
            batch = batch_from_records(move, arrow_schema(process.Op))
            pair.do(lambda each, batch=batch, times=[op.ts for op in move]: each.push(batch, times))
        else:
            pair.restore(*move[1])
    pair.check()


def check_join(program: Any, state: StateBackend) -> None:
    pair = Pair(JOIN.create, ["id"], ["ref"], JOIN.description, state)
    for side, value in program:
        if side == "restore":
            pair.restore(*value)
            continue
        left = [{"id": row.id, "n": row.n, "of": [1.5]} for row in value]
        right = [{"n": row.n, "ref": row.id, "mark": 7} for row in value]
        times, kinds = [row.ts for row in value], [row.kind for row in value]
        if side == "left":
            batch = pa.RecordBatch.from_pylist(left, join.LEFT)
            pair.do(lambda each, given=(batch, times, None, kinds): each.push(*given))
        else:
            batch = pa.RecordBatch.from_pylist(right, join.RIGHT)
            pair.do(lambda each, given=(batch, times, kinds): each.push_right(*given))
    pair.check()


SIDES = st.tuples(st.sampled_from(["left", "right"]), join.ROWS)
MET: Any = [
    ("left", [join.Row(f"k{n}", n, 1) for n in range(20)]),
    ("restore", (2, 5)),
    ("right", [join.Row(f"k{n}", n, 1) for n in range(20)]),
    ("restore", (3, 16)),
    ("left", [join.Row(f"k{n}", n, 1) for n in range(20)]),
]


@settings(max_examples=30, deadline=None)
@given(st.lists(OPS | st.integers(0, 70) | RESTORE, max_size=10), st.lists(SIDES | RESTORE, max_size=8))
@example(PROGRAM, MET)
def test_process_functions_and_joins(program: Any, sides: Any) -> None:
    check_process(program, UNLIMITED)
    check_join(sides, UNLIMITED)


@settings(max_examples=12, deadline=None)
@given(st.lists(OPS | st.integers(0, 70) | RESTORE, max_size=10), st.lists(SIDES | RESTORE, max_size=8))
@example(PROGRAM, MET)
def test_process_functions_and_joins_in_rocksdb(program: Any, sides: Any) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check_process(program, state)
        check_join(sides, state)


def test_the_sides_of_a_join_in_the_wrong_place_are_found() -> None:
    def all_left(batch: pa.RecordBatch, side: str, keys: Sequence[str]) -> Any:
        return HASHES_IN(batch, "left", ["id"])

    mutant = Mutant("rows go where the left side says", [(regrouping, "_hashes_in", all_left)])
    with mutated(mutant), pytest.raises(AssertionError):
        check_join(MET, UNLIMITED)


HASHES_IN = regrouping._hashes_in


# --- Rows on their way, and rows without a key ---


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5), st.integers(1, 5), st.booleans())
@example(128, 3, 4, 2, True)
@example(3, 128, 3, 5, True)
@example(8, 12, 3, 5, False)
def test_each_row_on_its_way_gets_to_one_slot_and_to_that_of_its_key(
    before: int, after: int, slots: int, now: int, has_key: bool
) -> None:
    slots, now = min(slots, before), min(now, after)
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(200), pa.int64())})
    hashes = hash_keys(batch, ["n"])
    files, handles = StateFiles(MemoryStore(), 1), []
    for subtask in range(slots):
        mine = key_group_range(before, slots, subtask)
        groups = key_groups_of(hashes, before)
        chosen = np.flatnonzero((groups >= mine.start) & (groups < mine.stop))
        rows = Records(batch.take(pa.array(chosen)), None, hashes[chosen] if has_key else None)
        frozen = frozen_in_flight([rows], batch.schema, mine, before)
        handles.append(files.write(1, "a > b", subtask, frozen))
    target = MemoryStore()
    manifest = CheckpointManifest("job", "lineage", 1, 1, 0, 0, slots, before, handles)
    copied = Regrouping(before, after).copied(files._store, target, manifest, 2)
    found: list[int] = []
    for slot, restore in enumerate(assign(copied, now)):
        mine = key_group_range(after, now, slot)
        wanted = [(handle, mine) for handle in restore.states.get("a > b", ())]
        for state in StateFiles(target, 2).read_all(wanted):
            for piece in state.batches("in_flight"):
                numbers = pa.RecordBatch.from_struct_array(piece.column("row"))
                if has_key:
                    groups = key_groups_of(hash_keys(numbers, ["n"]), after)
                    assert set(groups.tolist()) <= set(mine)
                found += numbers.column("n").to_pylist()
    assert sorted(found) == list(range(200))
