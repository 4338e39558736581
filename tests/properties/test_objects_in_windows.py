"""Accumulators that are objects without columns, in windows that tumble, slide and merge: what they come to
is what a list that is kept as a column comes to, over restores, rescales and in both backends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import AggregateFunction, session, sliding, tumbling
from onceflow.runtime.operators.user_state import UserType, object_type
from onceflow.runtime.operators.windows import window_values
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.object_codecs import ObjectCodec
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import batch_from_records
from onceflow.runtime.types.record_types import arrow_schema


class Bought(NamedTuple):
    user: str
    item: str
    ts: int


class Items(AggregateFunction[Bought, list[str], list[str]]):
    """What was bought, in a list that is changed in place."""

    def create_accumulator(self) -> list[str]:
        return []

    def add(self, value: Bought, accumulator: list[str]) -> list[str]:
        accumulator.append(value.item)
        return accumulator

    def merge(self, accumulator_a: list[str], accumulator_b: list[str]) -> list[str]:
        accumulator_a.extend(accumulator_b)
        return accumulator_a

    def get_result(self, accumulator: list[str]) -> list[str]:
        return list(accumulator)


class Basket:
    """No record type, and changed in place."""

    def __init__(self) -> None:
        self.items: list[Any] = []


class Pickled(AggregateFunction[Bought, Basket, list[str]]):
    codec = "pickle"

    def create_accumulator(self) -> Basket:
        return Basket()

    def add(self, value: Bought, accumulator: Basket) -> Basket:
        accumulator.items.append((value.item, {value.user}))
        return accumulator

    def merge(self, accumulator_a: Basket, accumulator_b: Basket) -> Basket:
        accumulator_a.items.extend(accumulator_b.items)
        return accumulator_a

    def get_result(self, accumulator: Basket) -> list[str]:
        return [item for item, _ in accumulator.items]


@dataclass
class Tree:
    """Contains itself, so it has no columns."""

    item: str
    below: list[Tree] = field(default_factory=list)


class Packed(AggregateFunction[Bought, Tree | None, list[str]]):
    """Its empty accumulator is None."""

    codec = "msgspec"

    def create_accumulator(self) -> Tree | None:
        return None

    def add(self, value: Bought, accumulator: Tree | None) -> Tree | None:
        tree = accumulator or Tree("root")
        tree.below.append(Tree(value.item))
        return tree

    def merge(self, accumulator_a: Tree | None, accumulator_b: Tree | None) -> Tree | None:
        if accumulator_a is None or accumulator_b is None:
            return accumulator_a or accumulator_b
        accumulator_a.below.extend(accumulator_b.below)
        return accumulator_a

    def get_result(self, accumulator: Tree | None) -> list[str]:
        return [] if accumulator is None else [tree.item for tree in accumulator.below]


WINDOWS = {"tumbling": tumbling(10), "sliding": sliding(12, 4), "session": session(6)}
ROWS = st.lists(
    st.builds(Bought, st.sampled_from("abcü"), st.sampled_from(["tea", "cup"]), st.integers(0, 60)),
    max_size=8,
)
STEP = ROWS | st.integers(1, 3) | st.tuples(st.integers(0, 60))
"""Rows, a restore at this parallelism, or event time."""
MOVED: list[Any] = [
    [Bought("a", "tea", 1), Bought("b", "cup", 3), Bought("a", "cup", 8)],
    *(3, [Bought("a", "tea", 5), Bought("c", "tea", 21), Bought("a", "pot", 12)]),
    *((11,), 2, [Bought("a", "can", 14), Bought("b", "tea", 14)], 1, (30,)),
]


def configured(window: Any) -> WindowAggregate:
    aggregates = {"items": Items(), "pickled": Pickled(), "packed": Packed()}
    return WindowAggregate("totals", ("user",), window, aggregates, arrow_schema(Bought), record_type=Bought)


def check_run(kind: str, steps: list[Any], state: StateBackend) -> None:
    create, results, pushed = configured(WINDOWS[kind]).create, [], 0
    harness = OperatorHarness(create, ["user"], max_parallelism=8, state=state)
    event_time = -1
    for step in [*steps, (1_000,)]:
        if isinstance(step, int):
            states = harness.snapshot()
            lost = [Bought("a", "lost", event_time + 1)]
            harness.push(batch_from_records(lost, arrow_schema(Bought)), [event_time + 1])
            harness = OperatorHarness(create, ["user"], step, max_parallelism=8, states=states, state=state)
            harness.advance(event_time)
        elif isinstance(step, tuple):
            event_time = max(event_time, *step)
            harness.advance(event_time)
        elif rows := [row for row in step if row.ts > event_time]:
            pushed += len(rows)
            harness.push(batch_from_records(rows, arrow_schema(Bought)), [row.ts for row in rows])
        results += harness.rows()
        harness.out.emitted.clear()
    for row in results:
        assert row["pickled"] == row["packed"] == row["items"], row
        assert "lost" not in row["pickled"]
    times = 3 if kind == "sliding" else 1
    assert sum(len(row["pickled"]) for row in results) == pushed * times


KINDS = st.sampled_from(sorted(WINDOWS))


@settings(max_examples=60, deadline=None)
@given(KINDS, st.lists(STEP, max_size=10))
@example("tumbling", MOVED)
@example("sliding", MOVED)
@example("session", MOVED)
def test_objects_come_to_what_columns_come_to(kind: str, steps: list[Any]) -> None:
    check_run(kind, steps, UNLIMITED)


@settings(max_examples=20, deadline=None)
@given(KINDS, st.lists(STEP, max_size=10))
@example("sliding", MOVED)
def test_so_do_those_of_snapshots_that_build_on_each_other(kind: str, steps: list[Any]) -> None:
    check_run(kind, steps, INCREMENTAL)


@settings(max_examples=8, deadline=None)
@given(KINDS, st.lists(STEP, max_size=10))
@example("tumbling", MOVED)
@example("sliding", MOVED)
@example("session", MOVED)
def test_so_do_those_in_rocksdb(kind: str, steps: list[Any]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check_run(kind, steps, state)


def shared(objects: ObjectCodec, state: str) -> UserType:
    """Objects that are taken for values which nobody changes."""
    kept = object_type(objects, state)
    return UserType(kept.encode, kept.decode, is_immutable=True)


def forgetful(objects: ObjectCodec, state: str) -> UserType:
    """The latest object of a snapshot is another's."""
    kept = object_type(objects, state)
    return UserType(lambda values: kept.encode([*values[:-1], *values[:1]]), kept.decode, is_immutable=False)


MUTANTS = [
    ("sliding", Mutant("windows share an object", [(window_values, "object_type", shared)])),
    ("tumbling", Mutant("an object is taken for another", [(window_values, "object_type", forgetful)])),
]


@pytest.mark.parametrize(("kind", "mutant"), MUTANTS, ids=lambda each: getattr(each, "title", each))
def test_an_object_that_is_not_a_windows_own_is_found(kind: str, mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_run(kind, MOVED, UNLIMITED)
