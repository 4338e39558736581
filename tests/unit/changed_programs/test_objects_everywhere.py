"""Objects without columns in every kind of state: restored with other slots on both backends, named in the
manifest, and refused where the program keeps them otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import onceflow
from onceflow import (
    AggregateFunction,
    AggregatingState,
    BroadcastState,
    KeyedBroadcastProcess,
    KeyedProcess,
    ReducingState,
    WindowProcess,
    WindowState,
    tumbling,
)
from onceflow.runtime.errors import GraphError
from onceflow.runtime.state.overflow import StateOptions
from tests.unit.changed_programs.conftest import Build

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 3_000), ("bob", 2, 0.5, 60_000))
BACKENDS = [StateOptions(), StateOptions("rocksdb", 16 << 20)]


@dataclass(frozen=True)
class Shown:
    kept: str


@dataclass
class Tree:
    """Contains itself, and has numbers: so no columns, but msgspec and pickle take it."""

    n: int
    below: list[Tree] = field(default_factory=list)


@dataclass
class Tall:
    n: int
    below: list[Tall] = field(default_factory=list)
    height: int = 0


def grown(tree: Any, other: Any) -> Any:
    tree.below.append(other)
    return tree


def growing(of: Any, kept: Any) -> AggregateFunction[Any, Any, str]:
    class Grow(AggregateFunction[Any, Any, str]):
        codec = kept

        def create_accumulator(self) -> Any:
            return of(0)

        def add(self, value: Any, accumulator: Any) -> Any:
            accumulator.below.append(of(value.amount))
            return accumulator

        def merge(self, accumulator_a: Any, accumulator_b: Any) -> Any:
            return grown(accumulator_a, accumulator_b)

        def get_result(self, accumulator: Any) -> str:
            return repr([each.n for each in accumulator.below])

    Grow.create_accumulator.__annotations__["return"] = of
    return Grow()


def combined(of: Any, codec: Any) -> Build:
    class Combine(KeyedProcess[str, Any, Shown]):
        reduced = ReducingState("reduced", of, grown, codec=codec)
        grown_ = AggregatingState("grown", growing(of, codec))

        def process(self, row: Any, ctx: Any) -> Any:
            self.reduced.add(of(row.amount))
            self.grown_.add(row)
            tree = self.reduced.get()
            assert tree is not None
            yield Shown(f"{[tree.n, *(each.n for each in tree.below)]} {self.grown_.get()}")

    return lambda s: {"out": s.key_by("user").process(Combine(), uid="op")}


def windowed(of: Any, codec: Any) -> Build:
    aggregates = {"kept": growing(of, codec)}
    return lambda s: {"out": s.key_by("user").window(tumbling("10 s")).aggregate(uid="op", **aggregates)}


def processed(of: Any, codec: Any) -> Build:
    class Fired(WindowProcess[str, Any, Shown]):
        tree = WindowState("tree", of, codec=codec)

        def process(self, key: str, window: Any, rows: list[Any], ctx: Any) -> Any:
            tree = self.tree.get() or of(0)
            self.tree.set(grown(tree, of(len(rows))))
            yield Shown(f"{key} {[each.n for each in tree.below]}")

    def build(s: Any) -> Any:
        windows = s.key_by("user").window(tumbling("500 ms"))
        windows = windows.allowed_lateness("1 h", results="accumulating")
        return {"out": windows.process(Fired(), uid="op")}

    return build


def broadcast(of: Any, codec: Any) -> Build:
    class Watch(KeyedBroadcastProcess[str, Any, Any, Shown]):
        trees = BroadcastState("trees", int, of, codec=codec)

        def process(self, row: Any, ctx: Any) -> Any:
            yield Shown(repr(sorted(self.trees.get(n).n for n, _ in self.trees.items())))

        def process_broadcast(self, rule: Any, ctx: Any) -> None:
            self.trees.put(rule.amount, of(rule.amount))

    return lambda s: {"out": s.key_by("user").connect(s.broadcast()).process(Watch(), uid="op")}


@dataclass(frozen=True)
class Case:
    """A program, what it must show when it goes on, and the table that says how it keeps it."""

    build: Any
    shown: str
    state: str
    kind: str
    refused: str


CASES = {
    "combined": Case(combined, "[5, 1] [5, 1]", "reduced", "value by", "grown=value({codec} of {of}"),
    "windows": Case(windowed, "[5, 1]", "windows", "window aggregate", "kept=function({codec} of {of}"),
    "states of windows": Case(processed, "bob [1]", "tree", "map by", "tree=map({codec} of {of}"),
    "broadcast": Case(broadcast, "[5, 7]", "trees", "broadcast by", "trees=broadcast({codec} of {of}"),
}


def kept(folder: Any) -> dict[str, str]:
    with onceflow.read_state(str(folder.path)) as stored:
        return {table.state: table.kind for table in stored.tables}


def all_shown(run: Any) -> list[str]:
    return [row["kept"] for row in run.visible["out"]]


@pytest.mark.parametrize("codec", ["msgspec", "pickle"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("state", BACKENDS, ids=lambda state: state.backend)
def test_objects_are_there_again_and_the_manifest_says_how(
    folder: Any, state: StateOptions, case: Case, codec: str
) -> None:
    folder.run(case.build(Tree, codec), *FIRST, state=state)
    kinds = kept(folder)
    assert kinds.get(case.state, "").startswith(case.kind), kinds
    if case.kind.endswith("by"):
        assert kinds[case.state] == f"{case.kind} {codec}"
    run = folder.run(case.build(Tree, codec), *LATER, state=state, slots=2)
    assert any(case.shown in each for each in all_shown(run)), all_shown(run)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_kept_otherwise_is_refused(folder: Any, case: Case) -> None:
    folder.run(case.build(Tree, "msgspec"), *FIRST)
    for of, codec in ((Tree, "pickle"), (Tall, "msgspec")):
        run = folder.run(case.build(of, codec), *LATER)
        assert run.result.is_refused
        said = str(run.result.reason)
        assert case.refused.format(codec="msgspec", of="Tree of the form") in said
        assert case.refused.format(codec=codec, of=of.__name__) in said
        assert "give the new" in said


def test_bytes_are_shown_as_bytes(folder: Any) -> None:
    folder.run(broadcast(Tree, "pickle"), *FIRST)
    with onceflow.read_state(str(folder.path)) as stored:
        rows = stored.table("op", "trees").read().to_pylist()
    assert sorted(row["map_key"] for row in rows) == [5, 7]
    assert {type(row["value"]) for row in rows} == {bytes}


def test_the_bytes_of_an_accumulator_are_a_field_of_its_window(folder: Any) -> None:
    folder.run(windowed(Tree, "pickle"), *FIRST)
    with onceflow.read_state(str(folder.path)) as stored:
        rows = stored.table("op", "windows").read().to_pylist()
    assert {type(row["value"]["kept"]) for row in rows} == {bytes}


class Plain:
    def __init__(self, n: int) -> None:
        self.n = n


@pytest.mark.parametrize("build", [case.build for case in CASES.values()], ids=CASES)
def test_what_msgspec_does_not_take_is_said_before_anything_starts(folder: Any, build: Any) -> None:
    with pytest.raises(GraphError, match=r'msgspec does not take Plain .*codec="pickle"'):
        folder.run(build(Plain, "msgspec"))
    with pytest.raises(GraphError, match='use "columns", "msgspec" or "pickle"'):
        folder.run(build(Tree, "json"))
