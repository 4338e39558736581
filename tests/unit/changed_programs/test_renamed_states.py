"""A state has another name in the program than in its checkpoint: it keeps its content, or is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import (
    AggregateFunction,
    AggregatingState,
    BroadcastCtx,
    BroadcastState,
    KeyedBroadcastProcess,
    KeyedProcess,
    ListState,
    MapState,
    OperatorListState,
    ReducingState,
    ValueState,
)
from onceflow.runtime.errors import GraphError
from onceflow.runtime.state.evolution import restored
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.testing.mutation import Mutant, mutated

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 3_000),)
BACKENDS = [StateOptions(), StateOptions("rocksdb", 16 << 20)]


@dataclass(frozen=True)
class Shown:
    user: str
    kept: str


class Sum(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


def remembering(prefix: str, former: str | None = None, amount: Any = int) -> Any:
    """`prefix` begins the names of all its states; `former`: what they began with before."""

    def names(name: str) -> dict[str, Any]:
        return {"former_names": [f"{former}{name}"]} if former is not None else {}

    class Remember(KeyedProcess[str, Any, Shown]):
        last = ValueState(f"{prefix}last", int, ttl="2 s", **names("last"))
        by_ts = MapState(f"{prefix}by_ts", int, int, ttl="1 d", ttl_time="processing", **names("by_ts"))
        every = ListState(f"{prefix}every", int, **names("every"))
        most = ReducingState(f"{prefix}most", amount, max, **names("most"))
        sum = AggregatingState(f"{prefix}sum", Sum(), **names("sum"))

        def process(self, row: Any, ctx: Any) -> Any:
            kept = (
                self.last.get(),
                dict(self.by_ts.items()),
                self.every.get(),
                self.most.get(),
                self.sum.get(),
            )
            yield Shown(row.user, repr(kept))
            self.last.set(row.amount)
            self.by_ts.put(row.ts, row.amount)
            self.every.add(row.amount)
            self.most.add(row.amount)
            self.sum.add(row.amount)

    return lambda s: {"out": s.key_by("user").process(Remember(), uid="op")}


KEPT = {"user": "ann", "kept": "(None, {1000: 5}, [5], 5, 5)"}
"""The last value was set at 1,000, and has expired at 3,000."""


def changes(run: Any) -> set[str]:
    return {fields["change"] for fields in run.events.named("state_changed")}


@pytest.mark.parametrize("state", BACKENDS, ids=lambda state: state.backend)
def test_states_keep_what_they_had_under_another_name(folder: Any, state: StateOptions) -> None:
    folder.run(remembering(""), *FIRST, state=state)
    run = folder.run(remembering("new_", ""), *LATER, state=state, slots=2)
    assert KEPT in run.visible["out"]
    assert changes(run) == {"renamed"}
    again = folder.run(remembering("new_"), ("ann", 2, 0.5, 4_000), state=state)
    assert not changes(again), "the new checkpoint has the new names"
    kept = repr((1, {1000: 5, 3000: 1}, [5, 1], 5, 6))
    assert {"user": "ann", "kept": kept} in again.visible["out"]


def test_a_renamed_state_may_change_its_type(folder: Any) -> None:
    folder.run(remembering(""), *FIRST)
    run = folder.run(remembering("new_", "", float), *LATER)
    assert {"user": "ann", "kept": "(None, {1000: 5}, [5], 5.0, 5)"} in run.visible["out"]
    assert changes(run) == {"renamed", "evolved"}


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("fields keep their names", [(restored, "_renamed", lambda batch, readers: batch)]),
        Mutant("times of expiry keep theirs", [(restored, "_OF_PARTS", ("state",))]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_what_gets_lost_is_found(folder: Any, mutant: Mutant) -> None:
    folder.run(remembering(""), *FIRST)
    with mutated(mutant):
        run = folder.run(remembering("new_", ""), *LATER, restart="none")
    assert KEPT not in run.visible["out"]


def two(*states: Any) -> Any:
    names = [f"s{n}" for n in range(len(states))]

    def process(self: Any, row: Any, ctx: Any) -> Any:
        for name in names:
            getattr(self, name).set(row.amount)
            yield Shown(row.user, name)

    declared = {**dict(zip(names, states, strict=True)), "process": process}
    two = type("Two", (KeyedProcess,), declared)
    return lambda s: {"out": s.key_by("user").process(two(), returns=Shown, uid="op")}


def value(name: str, *former: str) -> Any:
    return ValueState(name, int, former_names=former)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (two(value("c", "a", "b")), "state 'c' may be 'a' or 'b' by its former_names"),
        (two(value("c", "a"), value("d", "a"), value("b")), "which state 'd' has, too"),
        (two(value("c")), "state 'a', which the program does not have"),
        (two(value("a"), value("c", "a")), "state 'b', which the program does not have"),
    ],
)
def test_what_may_be_two_is_refused(folder: Any, after: Any, said: str) -> None:
    folder.run(two(value("a"), value("b")), *FIRST)
    run = folder.run(after)
    assert run.result.is_refused
    assert said in run.result.reason


def test_names_may_be_swapped_back_and_former_ones_that_are_not_there_do_not_matter(folder: Any) -> None:
    folder.run(two(value("a"), value("b")), *FIRST)
    run = folder.run(two(value("a", "b", "x"), value("b", "a")), *LATER)
    assert not changes(run)
    assert not run.result.is_refused


@pytest.mark.parametrize("former", ["a", ("a", "a"), ("c",), ("no name",)])
def test_former_names_that_can_not_be(former: Any) -> None:
    with pytest.raises(GraphError, match=r"state ('c'|name 'no name')"):
        ValueState("c", int, former_names=former)


def listing(name: str, *former: str) -> Any:
    class Keep:
        kept = OperatorListState(name, int, former_names=former)

        def __call__(self, row: Any) -> Shown:
            self.kept.add(row.amount)
            return Shown(row.user, repr(self.kept.get()))

    return lambda s: {"out": s.map(Keep(), uid="keep")}


def broadcasting(name: str, *former: str) -> Any:
    class Rules(KeyedBroadcastProcess[str, Any, Any, Shown]):
        rules = BroadcastState(name, str, int, former_names=former)
        seen = ValueState("seen", int)

        def process(self, row: Any, ctx: Any) -> Any:
            yield Shown(row.user, repr(sorted(self.rules.items())))

        def process_broadcast(self, rule: Any, ctx: BroadcastCtx) -> None:
            self.rules.put(rule.user, rule.amount)

    def program(s: Any) -> Any:
        return {"out": s.key_by("user").connect(s.broadcast()).process(Rules(), uid="op")}

    return program


def test_lists_and_broadcast_states_too(folder: Any) -> None:
    def program(*names: str) -> Any:
        return lambda s: {"lists": listing(*names)(s)["out"], "rules": broadcasting(*names)(s)["out"]}

    folder.run(program("old"), *FIRST)
    run = folder.run(program("new", "old"), *LATER)
    assert run.visible["lists"][-1]["kept"] == "[5, 7, 1]"
    kept = [row["kept"] for row in run.visible["rules"] if row["user"] == "ann"][-1]
    assert kept in (repr([("ann", 5), ("bob", 7)]), repr([("ann", 1), ("bob", 7)]))
