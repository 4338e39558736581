"""A job of any graph that gets other numbers of slots and of key groups on its way, however often, has the
output of the same graph run once in one slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import UnionListState
from onceflow.runtime.checkpoint import recovery
from onceflow.runtime.checkpoint.savepoints.regrouping import Regrouping
from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.processing.broadcast import BroadcastOperator
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from tests.drawn_functions import Row
from tests.drawn_graphs import SLACK_MS, STEP, STEPS, Step, drawn_job
from tests.rescaled_run import RescaledRun

GROUPS = 8
SPLITS = {"source0": ["a"], "source1": ["b", "c"], "source2": ["d"]}
PLACES = [(uid, split) for uid, names in SPLITS.items() for split in names]
Output = dict[str, Counter[str]]


class Feed:
    """The rows of each split, as they are numbered: event time goes on, out of order within the slack."""

    def __init__(self) -> None:
        self._highest = [0] * len(PLACES)
        self._next = 0

    def rows(self, place: int, drawn: Sequence[tuple[int, int, int, int]]) -> dict[str, dict[str, list[Row]]]:
        uid, split = PLACES[place]
        made = []
        for key, n, later, late in drawn:
            highest = self._highest[place] = self._highest[place] + later
            made.append(Row(self._next, f"k{key}", n, max(0, highest - late)))
            self._next += 1
        return {uid: {split: made}}


def output(steps: Sequence[Step], moves: Any, state: StateBackend, is_rescaled: bool) -> Output:
    feed = Feed()
    with RescaledRun(drawn_job(steps, GROUPS), SPLITS, state, 2 if is_rescaled else 1) as run:
        for kind, *how in moves:
            if kind == "rows":
                run.push(**feed.rows(*how))
            elif not is_rescaled:
                continue
            elif kind == "savepoint":
                run.start_from_savepoint(*how)
            elif kind == "restart":
                run.restart(*how)
            elif kind == "crash":
                run.crash(*how)
            else:
                run.checkpoint()
        return run.output()


def check(steps: Sequence[Step], moves: Any, state: StateBackend) -> None:
    expected = output(steps, moves, UNLIMITED, is_rescaled=False)
    assert output(steps, moves, state, is_rescaled=True) == expected


ROW = st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 6), st.integers(0, SLACK_MS - 1))
ROWS = st.tuples(st.just("rows"), st.integers(0, len(PLACES) - 1), st.lists(ROW, min_size=1, max_size=6))
SLOTS = st.integers(1, 4)
RESCALE = (
    st.tuples(st.sampled_from(["restart", "crash"]), SLOTS)
    | st.tuples(st.just("savepoint"), SLOTS, st.integers(4, 12))
    | st.just(("checkpoint",))
)
MOVES = st.lists(ROWS | RESCALE, min_size=3, max_size=12)
GRAPH = st.lists(STEP, min_size=1, max_size=5)


def rows(from_ts: int) -> list[Any]:
    """Rows of all keys in all splits; event time goes on by 20 or so."""
    return [
        ("rows", place, [(n % 5, n + place, from_ts if n == 0 else 3, n % 4) for n in range(7)])
        for place in range(len(PLACES))
    ]


ALL: Any = [(name, n, n + 1, 1 + n % 3) for n, name in enumerate(sorted(STEPS))]
"""Each step once, most of them behind another."""
EACH_WAY: Any = [
    *rows(0),
    ("restart", 3),
    *rows(4),
    ("crash", 4),
    ("savepoint", 3, 12),
    *rows(2),
    ("savepoint", 2, 5),
    ("crash", 1),
    *rows(9),
    ("restart", 4),
]


@settings(max_examples=15, deadline=None)
@given(GRAPH, MOVES)
@example(ALL, EACH_WAY)
def test_in_memory(steps: Sequence[Step], moves: Any) -> None:
    check(steps, moves, UNLIMITED)


@settings(max_examples=6, deadline=None)
@given(GRAPH, MOVES)
@example(ALL, EACH_WAY)
def test_in_increments(steps: Sequence[Step], moves: Any) -> None:
    check(steps, moves, INCREMENTAL)


@settings(max_examples=3, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=3), st.lists(ROWS | RESCALE, min_size=3, max_size=6))
@example(ALL, [*rows(0), ("savepoint", 2, 12), *rows(4), ("crash", 1)])
def test_in_rocksdb(steps: Sequence[Step], moves: Any) -> None:
    with tight_rocksdb() as state:
        check(steps, moves, state)


OWNERS, RESTORE_RULES = recovery._owners, BroadcastOperator.restore


def one_off(key_groups: range, max_parallelism: int, parallelism: int) -> range:
    owners = OWNERS(key_groups, max_parallelism, parallelism)
    return range(owners.start, max(owners.start + 1, owners.stop - 1))


def all_to_the_first(self: Any, lists: Sequence[list[Any]], subtask: int, parallelism: int) -> list[Any]:
    return [value for values in lists for value in values] if subtask == 0 else []


def by_the_first(self: BroadcastOperator, states: Any) -> None:
    RESTORE_RULES(self, states)
    if all(state.key_groups.start > 0 for state in states):
        for rules in self._states.values():
            rules._entries = {}


def as_they_were(self: Regrouping, batch: Any, state: Any) -> Any:
    return batch.column("key_group").to_numpy() % self.after


@pytest.mark.parametrize(
    ("step", "mutant"),
    [
        ("process", Mutant("the last of two owners gets nothing", [(recovery, "_owners", one_off)])),
        ("lists", Mutant("united lists go to one", [(UnionListState, "dealt", all_to_the_first)])),
        ("rules", Mutant("rules come back in one", [(BroadcastOperator, "restore", by_the_first)])),
        ("window", Mutant("rows keep their key group", [(Regrouping, "groups_of", as_they_were)])),
    ],
    ids=lambda value: getattr(value, "title", value),
)
def test_state_in_the_wrong_slot_is_found(step: str, mutant: Mutant) -> None:
    check([(step, 0, 1, 0)], EACH_WAY, UNLIMITED)
    with mutated(mutant), pytest.raises((AssertionError, UserFunctionError)):
        check([(step, 0, 1, 0)], EACH_WAY, UNLIMITED)
