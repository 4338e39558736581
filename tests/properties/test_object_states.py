"""States by key whose values are objects without columns, by pickle and by msgspec, against dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction
from onceflow.runtime.operators.processing.combined_states import AggregatingState, ReducingState
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.state.handles import ListState, MapState, ValueState
from onceflow.runtime.state.kept_objects import ObjectValues
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import OperatorHarness, stored
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import RecordWriter, batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


class Basket:
    """No record type, and changed in place."""

    def __init__(self) -> None:
        self.items: dict[Any, Any] = {}

    def put(self, item: str) -> None:
        self.items[item, len(self.items)] = {item}

    def __repr__(self) -> str:
        return f"Basket({self.items})"


@dataclass
class Tree:
    """Contains itself, so it has no columns."""

    name: str
    below: list[Tree] = field(default_factory=list)


class Bought(NamedTuple):
    user: str
    item: str


class Shown(NamedTuple):
    user: str
    kept: str


def poured(basket: Basket, more: Basket) -> Basket:
    for item, _ in more.items:
        basket.put(item)
    return basket


class Branches(AggregateFunction[str, Tree, str]):
    """Grows a tree in place."""

    codec = "msgspec"

    def create_accumulator(self) -> Tree:
        return Tree("root")

    def add(self, value: str, accumulator: Tree) -> Tree:
        accumulator.below.append(Tree(value))
        return accumulator

    def merge(self, accumulator_a: Tree, accumulator_b: Tree) -> Tree:
        raise AssertionError("one key has one accumulator")

    def get_result(self, accumulator: Tree) -> str:
        return repr(accumulator)


class Remember(KeyedProcess[str, Bought, Shown]):
    basket = ValueState("basket", Basket, codec="pickle")
    trees = ListState("trees", Tree, codec="msgspec")
    by_item = MapState("by_item", str, Basket, codec="pickle")
    together = ReducingState("together", Basket, poured, codec="pickle", ttl="1 d")
    branches = AggregatingState("branches", Branches())

    def process(self, row: Bought, ctx: Ctx) -> Iterator[Shown]:
        yield Shown(
            row.user,
            repr(
                (
                    self.basket.get(),
                    self.trees.get(),
                    dict(self.by_item.items()),
                    self.together.get(),
                    self.branches.get(),
                )
            ),
        )
        if not row.item:
            self.basket.clear()
            self.trees.clear()
            self.by_item.clear()
            self.together.clear()
            self.branches.clear()
            return
        self.basket.set(bought(self.basket.get(), row.item))
        self.trees.add(grown(self.trees.get(), row.item))
        self.by_item.put(row.item, bought(self.by_item.get(row.item), row.item))
        self.together.add(bought(None, row.item))
        self.branches.add(row.item)


def bought(before: Basket | None, item: str) -> Basket:
    basket = before or Basket()
    basket.put(item)
    return basket


def grown(before: list[Tree], item: str) -> Tree:
    return Tree(item, [Tree(tree.name) for tree in before[-2:]])


class Model:
    """What a user has bought, in objects that nobody else has."""

    def __init__(self) -> None:
        self.basket: Basket | None = None
        self.trees: list[Tree] = []
        self.by_item: dict[str, Basket] = {}
        self.together: Basket | None = None
        self.branches: Tree | None = None

    def shown(self, row: Bought) -> Shown:
        branches = None if self.branches is None else repr(self.branches)
        kept = (self.basket, self.trees, self.by_item, self.together, branches)
        shown = Shown(row.user, repr(kept))
        if not row.item:
            self.__init__()  # type: ignore[misc]
            return shown
        self.basket = bought(self.basket, row.item)
        self.trees.append(grown(self.trees, row.item))
        self.by_item[row.item] = bought(self.by_item.get(row.item), row.item)
        one = bought(None, row.item)
        self.together = one if self.together is None else poured(self.together, one)
        self.branches = Tree("root", [*(self.branches.below if self.branches else []), Tree(row.item)])
        return shown


ROWS = st.lists(st.builds(Bought, st.sampled_from("abcü"), st.sampled_from(["tea", "cup", ""])), max_size=6)
STEP = ROWS | st.integers(1, 3)
"""Rows, or a restore at this parallelism."""
MOVED: list[Any] = [
    *([Bought("a", "tea"), Bought("b", "cup")], 3, [Bought("a", "tea"), Bought("c", "tea")]),
    *(2, [Bought("a", ""), Bought("b", "tea")], 1, [Bought(user, "cup") for user in "abc"]),
]


def create() -> ProcessOperator:
    made = RecordWriter(arrow_schema(Shown))
    read = RecordReader(Bought)
    process = Remember()
    return ProcessConfig(
        "remember", process, ("user",), arrow_schema(Bought), made, read, has_event_time=True
    ).create()


def check_run(steps: list[Any], state: StateBackend) -> None:
    users: dict[str, Model] = defaultdict(Model)
    harness = OperatorHarness(create, ["user"], max_parallelism=8, state=state)
    for step in steps:
        if isinstance(step, int):
            states = harness.snapshot()
            lost = [Bought("a", "lost"), Bought("b", "")]
            harness.push(batch_from_records(lost, arrow_schema(Bought)), [0, 0])
            harness = OperatorHarness(create, ["user"], step, max_parallelism=8, states=states, state=state)
        elif step:
            harness.push(batch_from_records(step, arrow_schema(Bought)), [0] * len(step))
            expected = [users[row.user].shown(row) for row in step]
            found = [Shown(**row) for row in harness.rows()]
            assert sorted(found, key=lambda shown: shown.user) == sorted(expected, key=lambda s: s.user)
        harness.out.emitted.clear()


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=10))
@example(MOVED)
def test_objects_are_those_of_dictionaries(steps: list[Any]) -> None:
    check_run(steps, UNLIMITED)


@settings(max_examples=20, deadline=None)
@given(st.lists(STEP, max_size=10))
@example(MOVED)
def test_so_are_those_of_snapshots_that_build_on_each_other(steps: list[Any]) -> None:
    check_run(steps, INCREMENTAL)


@settings(max_examples=5, deadline=None)
@given(st.lists(STEP, max_size=10))
@example(MOVED)
def test_so_are_those_in_rocksdb(steps: list[Any]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check_run(steps, state)


def lose_one(self: ObjectValues, values: list[Any]) -> Any:
    """The last object of a column is another's."""
    return original(self, [*values[:-1], values[0]] if values else values)


original = ObjectValues.to_arrow
MIXED = Mutant("an object is taken for another", [(ObjectValues, "to_arrow", lose_one)])
SHARED = Mutant("a snapshot has what comes later", [(ObjectValues, "is_immutable", True)])


def test_an_object_that_is_taken_for_another_is_found() -> None:
    with mutated(MIXED), pytest.raises(AssertionError):
        check_run(MOVED, UNLIMITED)


def check_snapshot() -> None:
    """What is bought behind the barrier is in no snapshot, whenever that is written."""
    harness, model = OperatorHarness(create, ["user"]), Model()
    row = Bought("a", "tea")
    harness.push(batch_from_records([row], arrow_schema(Bought)), [0])
    model.shown(row)
    frozen = harness.subtasks[0].snapshot()
    harness.push(batch_from_records([Bought("a", "tea"), Bought("a", "cup")], arrow_schema(Bought)), [0, 0])
    behind = OperatorHarness(create, ["user"], states=[stored(frozen)])
    behind.push(batch_from_records([row], arrow_schema(Bought)), [0])
    assert behind.rows() == [model.shown(row)._asdict()]


def test_a_snapshot_has_objects_as_they_were() -> None:
    check_snapshot()


def test_one_that_shares_them_is_found() -> None:
    with mutated(SHARED), pytest.raises(AssertionError):
        check_snapshot()
