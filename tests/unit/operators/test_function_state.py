"""Lists without a key: each element at exactly one subtask after a rescale, or at all of them; and the calls
that a function object gets around its checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import (
    CoFlatMap,
    InitializationContext,
    Job,
    KeyedProcess,
    OperatorListState,
    SnapshotContext,
    UnionListState,
    errors_to,
)
from onceflow.runtime.checkpoint import recovery
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.operators import function_state
from onceflow.runtime.operators.function_state import FunctionState
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.testing import SimulationError, harness, run, simulate


@dataclass(frozen=True)
class Number:
    n: int


@dataclass(frozen=True)
class Seen:
    n: int
    restored: int


class Keep:
    """Keeps all numbers in a list that is dealt out; says how many all subtasks had between two restarts."""

    own = OperatorListState("own", Number)
    all = UnionListState("all", int)
    restored = 0

    def initialize_state(self, ctx: InitializationContext) -> None:
        self.restored = len(self.all) if ctx.is_restored else -1
        self.all.clear()

    def __call__(self, number: Number) -> Seen:
        assert number not in self.own.get()
        self.own.add(number)
        self.all.add(number.n)
        return Seen(number.n, self.restored)


def keeping(function: Any = None) -> Job:
    job = Job("keeping")
    job.from_elements(Number(1), uid="numbers").map(function or Keep(), uid="keep").print(uid="out")
    return job


def kept(test: Any) -> list[list[int]]:
    """The numbers in the list of each subtask that has some."""
    rows = sorted(test.state("keep"), key=lambda row: row["subtask"])
    return [[each["n"] for each in row["state"]["own"] or ()] for row in rows]


SPLITS = [f"s{n}" for n in range(4)]
Cuts = list[tuple[int, int, bool]]
"""How many numbers each split gets, at which parallelism the job goes on then, and whether it crashes after
some more, which are read again then."""


def check_dealt(cuts: Cuts) -> None:
    """Each number is in exactly one list, the lists are even behind a rescale, all subtasks got the union."""
    given, since, before, parallelism = 0, 0, -1, 2
    with run(keeping(), parallelism=parallelism, numbers={split: [] for split in SPLITS}) as test:
        for count, wanted, is_crash in cuts:
            numbers = {s: [Number(given + count * i + n) for n in range(count)] for i, s in enumerate(SPLITS)}
            test.push(numbers=numbers)
            assert {row["restored"] for row in test.rows("out") if row["n"] >= given} <= {before}
            given, before = given + 4 * count, since + 4 * count
            lists = kept(test)  # takes a checkpoint
            assert Counter(n for each in lists for n in each) == Counter(range(given)), lists
            if is_crash:
                test.push(numbers={"s0": [Number(given)]})
            test.crash(parallelism=wanted)
            since = int(is_crash)
            given += since
            sizes = [len(each) for each in kept(test)]
            sizes += [0] * (wanted - len(sizes))
            assert wanted == parallelism or max(sizes) - min(sizes) <= 1 + is_crash, sizes
            parallelism = wanted


CUTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), min_size=1, max_size=4)
BOTH_WAYS: Cuts = [(3, 3, False), (0, 1, True), (2, 4, False), (1, 4, True)]


@settings(max_examples=25, deadline=None)
@given(CUTS)
@example(BOTH_WAYS)
def test_each_element_is_at_exactly_one_subtask_and_each_of_a_union_at_all(cuts: Cuts) -> None:
    check_dealt(cuts)


def all_lists(self: OperatorListState[Any], lists: Sequence[list[Any]], *_: int) -> list[Any]:
    return [value for values in lists for value in values]


def own_list(
    self: UnionListState[Any], lists: Sequence[list[Any]], subtask: int, parallelism: int
) -> list[Any]:
    return lists[subtask] if subtask < len(lists) else []


def by_number(
    self: OperatorListState[Any], lists: Sequence[list[Any]], subtask: int, parallelism: int
) -> list[Any]:
    """Leaves out lists of subtasks that there are no more."""
    return lists[subtask] if subtask < len(lists) else []


MUTANTS = [
    Mutant("a list is dealt out as a union", [(OperatorListState, "dealt", all_lists)]),
    Mutant("a union is dealt out by subtask", [(UnionListState, "dealt", own_list)]),
    Mutant("lists of subtasks that are gone are lost", [(OperatorListState, "dealt", by_number)]),
    Mutant("state without a key goes to owners of key groups", [(recovery, "BY_SUBTASK", "nobody")]),
    Mutant("it is cut by key groups", [(JobGraph, "has_keyed_state", lambda self, uid: True)]),
    Mutant("nothing is restored", [(FunctionState, "restore", lambda self, states: None)]),
    Mutant("nothing is said of the restore", [(FunctionState, "begin", lambda self: None)]),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_lists_that_are_dealt_out_wrongly_are_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_dealt(BOTH_WAYS)


@dataclass(frozen=True)
class Of:
    split: str
    place: int


class Offsets:
    """Says of each record how many of its split came before it: a union of what all subtasks know."""

    counts = UnionListState("counts", Of)
    seen = OperatorListState("seen", Of)

    def initialize_state(self, ctx: InitializationContext) -> None:
        self.known: dict[str, int] = {}
        for each in self.counts.get():
            self.known[each.split] = max(each.place, self.known.get(each.split, 0))

    def snapshot_state(self, ctx: SnapshotContext) -> None:
        self.counts.update(Of(split, place) for split, place in self.known.items())

    def __call__(self, record: Of) -> Iterator[Of]:
        assert record not in self.seen.get(), "it came before"
        self.seen.add(record)
        yield Of(record.split, self.known.get(record.split, 0))
        self.known[record.split] = self.known.get(record.split, 0) + 1


def offsets() -> tuple[Job, dict[str, Any]]:
    job = Job("offsets")
    job.from_elements(Of("s", 1), uid="records").flat_map(Offsets(), uid="count").print(uid="out")
    return job, {"records": {f"s{n}": [Of(f"s{n}", place) for place in range(6)] for n in range(3)}}


@pytest.mark.parametrize("barriers", ["aligned", "unaligned"])
def test_lists_under_crashes_and_rescales(barriers: str) -> None:
    job, inputs = offsets()
    report = simulate(job, inputs, seeds=12, barriers=barriers)
    assert report.rows == {"out": 18}
    assert sum(report.crashes.values()) > 4


@pytest.mark.parametrize(
    "mutant",
    [
        MUTANTS[1],
        MUTANTS[3],
        Mutant("the function is not asked", [(function_state, "SNAPSHOT", "nothing")]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_lists_that_get_lost_are_found(mutant: Mutant) -> None:
    job, inputs = offsets()
    with mutated(mutant), pytest.raises(SimulationError):
        simulate(job, inputs, seeds=60)


class Distinct:
    """Passes what its subtask has not seen."""

    seen = OperatorListState("seen", int)

    def __call__(self, number: Number) -> bool:
        is_new = number.n not in self.seen.get()
        if is_new:
            self.seen.add(number.n)
        return is_new


class Batches:
    rows = OperatorListState("rows", int)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.rows.update([sum(self.rows.get()) + batch.num_rows])
        before = pa.array([self.rows.get()[0]] * batch.num_rows)
        return pa.RecordBatch.from_pydict({"n": before})


class Both(CoFlatMap[Number, Seen, Number]):
    lefts = OperatorListState("lefts", Number)

    def flat_map_left(self, record: Number) -> None:
        self.lefts.add(record)

    def flat_map_right(self, record: Seen) -> list[Number]:
        return self.lefts.get()


def test_filters_batches_and_two_streams_keep_lists_too() -> None:
    with harness(Distinct()) as distinct:
        for n in (1, 2, 1):
            distinct.element(Number(n))
        assert distinct.restart().element(Number(2)).element(Number(3)).out == [Number(n) for n in (1, 2, 3)]
    job = Job("both")
    numbers = job.from_elements(Number(1), uid="numbers")
    numbers.map_batches(Batches(), Number, uid="batches").print(uid="counted")
    seen = job.from_elements(Seen(1, 1), uid="seen")
    numbers.connect(seen).flat_map(Both(), uid="both").print(uid="out")
    with run(job, numbers=[Number(1), Number(2)]) as test:
        test.restart().push(numbers=[Number(3)]).push(seen=[Seen(0, 0)])
        assert test.rows("out") == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert max(row["n"] for row in test.rows("counted")) == 3


class Raises:
    kept = OperatorListState("kept", int)

    def __init__(self, where: str) -> None:
        self.where = where

    def initialize_state(self, ctx: InitializationContext) -> None:
        self._raise("initialize_state")

    def snapshot_state(self, ctx: SnapshotContext) -> None:
        self._raise("snapshot_state")

    def __call__(self, number: Number) -> Number:
        return number

    def _raise(self, where: str) -> None:
        if self.where == where:
            raise ValueError("it is not to be")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("initialize_state", r"Raises.initialize_state failed on subtask 0 of 1 \(at .*it is not to be"),
        ("snapshot_state", r"Raises.snapshot_state failed on checkpoint 1 \(at .*it is not to be"),
    ],
)
def test_what_raises_is_named(where: str, said: str) -> None:
    with pytest.raises(OnceflowError, match=said), run(keeping(Raises(where)), numbers=[]) as test:
        test.checkpoint()


class NoContext(Distinct):
    def snapshot_state(self) -> None:
        pass


class Twice(Distinct):
    again = UnionListState("seen", int)


class ByKey(KeyedProcess[int, Number, Number]):
    kept = OperatorListState("kept", int)

    def process(self, number: Number, ctx: Any) -> None:
        pass


def numbers() -> Any:
    return Job("refused").from_elements(Number(1))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: numbers().filter(NoContext()), r"can't be called as `snapshot_state\(self, ctx\)`"),
        (lambda: numbers().filter(Twice()), "two states are called 'seen'"),
        (lambda: numbers().filter(Distinct(), on_error="drop"), "leave on_error= out"),
        (lambda: numbers().map(Keep(), on_error=errors_to("bad")), "leave on_error= out"),
        (lambda: numbers().map_async(Keep()), "which map_async does not keep: use map, flat_map"),
        (lambda: numbers().key_by(Distinct()), "which key_by does not keep: use map, flat_map"),
        (lambda: numbers().split(Keep(), into=["a"]), "which split does not keep: use map, flat_map"),
        (lambda: numbers().key_by("n").process(ByKey()), "the class has keys: use a ListState"),
        (lambda: OperatorListState("a b", int), "state name 'a b'"),
        (lambda: harness(ByKey()), r"write harness\(ByKey\(\), key=...\)"),
    ],
)
def test_what_is_not_kept_is_refused(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(OnceflowError, match=said):
        build()
