"""A job is stopped, the types that its state is made of are changed, and it goes on: on both backends, with
another parallelism, and from records in every kind of state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import polars as pl
import pytest

from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.processing.combined_states import ReducingState
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.state.handles import ListState, MapState, ValueState
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.types.value_types import FormerName

col = pl.col
FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 9_000), ("end", 0, 0.0, 99_000))
BACKENDS = [StateOptions(), StateOptions("rocksdb", 16 << 20)]


@dataclass
class Row:
    user: str
    amount: int
    price: float
    ts: int


@dataclass
class Visit:
    """The record as it was."""

    user: str
    amount: int
    note: str


@dataclass
class Visit2:
    """A field is renamed and promoted, two are new."""

    note: str
    user: str
    total: Annotated[float, FormerName("amount")]
    tags: list[str] = field(default_factory=lambda: ["old"])
    rank: int | None = None


@dataclass
class Short:
    """A field is gone."""

    user: str
    amount: int


@dataclass
class Demanding(Visit):
    rank: int


Make = Callable[[Row], Any]


def visit(row: Row) -> Visit:
    return Visit(row.user, row.amount, "n")


def visit2(row: Row) -> Visit2:
    return Visit2("n", row.user, row.amount, ["new"])


def short(row: Row) -> Short:
    return Short(row.user, row.amount)


def demanding(row: Row) -> Demanding:
    return Demanding(row.user, row.amount, "n", 1)


MADE: dict[Any, Make] = {Visit: visit, Visit2: visit2, Short: short, Demanding: demanding}


@dataclass
class Shown:
    user: str
    kept: str


def remembering(record: Any) -> Any:
    """It keeps records in each kind of state, and shows those of before."""

    class Remember(KeyedProcess[str, Row, Shown]):
        last = ValueState("last", record)
        first = ReducingState("first", record, earlier)
        every = ListState("every", record)
        by_ts = MapState("by_ts", int, record)

        def process(self, row: Row, ctx: Any) -> Any:
            yield Shown(row.user, repr((self.last.get(), self.first.get(), [*self.every.get()])))
            yield Shown(row.user, repr([*self.by_ts.items()]))
            made = MADE[record](row)
            self.last.set(made)
            self.first.add(made)
            self.every.add(made)
            self.by_ts.put(row.ts, made)

    return lambda s: {"out": s.key_by("user").process(Remember(), uid="op")}


def earlier(a: Any, b: Any) -> Any:
    return a


def reducing(record: Any) -> Any:
    def program(s: Any) -> Any:
        made = s.map(MADE[record], returns=record).key_by("user")
        return {"out": made.reduce(earlier, uid="op")}

    return program


def windowed(record: Any, window: Any = None) -> Any:
    def program(s: Any) -> Any:
        made = s.map(MADE[record], returns=record).key_by("user")
        return {"out": made.window(window or tumbling("10 s")).reduce(earlier, uid="op")}

    return program


def in_sessions(record: Any) -> Any:
    return windowed(record, session("10 s"))


def kept_by_an_aggregate(record: Any) -> Any:
    class First(AggregateFunction[Any, Any, Any]):
        def create_accumulator(self) -> Any:
            return MADE[record](Row("", 0, 0.0, 0))

        def add(self, value: Any, accumulator: Any) -> Any:
            return accumulator if accumulator.user else MADE[record](value)

        def merge(self, accumulator_a: Any, accumulator_b: Any) -> Any:
            return accumulator_a

        def get_result(self, accumulator: Any) -> str:
            return repr(accumulator)

    First.create_accumulator.__annotations__["return"] = record
    return lambda s: {"out": s.key_by("user").window(tumbling("10 s")).aggregate(uid="op", kept=First())}


OLD = {name: Visit2("n", name, float(amount), ["old"]) for name, amount in (("ann", 5), ("bob", 7))}


def columns(record: Visit2) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("note", "user", "total", "tags", "rank")}


REDUCED = [columns(OLD["ann"]), columns(OLD["bob"])]
CASES = {
    "states": (
        remembering,
        [
            {"user": "ann", "kept": repr((OLD["ann"], OLD["ann"], [OLD["ann"]]))},
            {"user": "ann", "kept": repr([(1_000, OLD["ann"])])},
        ],
    ),
    "reduce": (reducing, REDUCED[:1]),
    "window reduce": (windowed, REDUCED),
    "sessions": (in_sessions, REDUCED),
    "aggregate": (
        kept_by_an_aggregate,
        [
            {"user": name, "window_start": 0, "window_end": 10_000, "kept": repr(record)}
            for name, record in OLD.items()
        ],
    ),
}


@pytest.mark.parametrize("state", BACKENDS, ids=lambda state: state.backend)
@pytest.mark.parametrize("name", CASES)
def test_records_are_read_as_the_program_declares_them_now(
    folder: Any, name: str, state: StateOptions
) -> None:
    program, expected = CASES[name]
    folder.run(program(Visit), *FIRST, state=state)
    run = folder.run(program(Visit2), *LATER, state=state, slots=2)
    assert {(f["uid"], f["change"]) for f in run.events.named("state_changed")} == {("op", "evolved")}
    assert sorted((row for row in run.visible["out"] if row in expected), key=repr) == sorted(
        expected, key=repr
    )
    again = folder.run(program(Visit2), state=state)
    assert not again.events.named("state_changed"), "the new checkpoint has the new type"


@pytest.mark.parametrize("name", CASES)
def test_a_field_that_is_gone_is_dropped_if_that_is_allowed(folder: Any, name: str) -> None:
    program, _ = CASES[name]
    folder.run(program(Visit), *FIRST)
    refused = folder.run(program(Short)).result
    assert refused.is_refused
    assert "note' is gone, with what it was in checkpoint" in refused.reason
    assert refused.reason.endswith("or start with --allow-dropped-state")
    run = folder.run(program(Short), *LATER, allow_dropped_state=True)
    assert {f["change"] for f in run.events.named("state_changed")} == {"dropped"}
    assert run.visible["out"]


@pytest.mark.parametrize("name", CASES)
def test_a_field_without_a_default_is_refused_at_once(folder: Any, name: str) -> None:
    program, _ = CASES[name]
    folder.run(program(Visit), *FIRST)
    run = folder.run(program(Demanding))
    assert run.result.is_refused
    assert "rank' is new and has no default: give it one, or" in run.result.reason
    assert [event for event, _ in run.events.all] == ["job_finished"], "no attempt was started"
    run = folder.run(program(Visit), *LATER)
    assert run.visible["out"], "the old program goes on"


def joining(record: Any) -> Any:
    """The records of the left side are kept by the join, with the columns that they have."""

    def program(s: Any) -> Any:
        left, right = s.map(MADE[record], returns=record).key_by("user"), s.key_by("user")
        amount = "total" if record is Visit2 else "amount"
        pairs = left.interval_join(right, lower="0 s", upper="60 s", uid="op")
        return {"out": pairs.select(col("user"), col(amount).alias("kept"), col("ts"))}

    return program


def test_the_rows_of_a_join_are_read_as_the_program_declares_them_now(folder: Any) -> None:
    """A join knows no defaults; what is gone from its rows may be dropped."""
    folder.run(joining(Visit), *FIRST)
    run = folder.run(joining(Short), ("ann", 1, 0.5, 9_000), allow_dropped_state=True)
    assert {"user": "ann", "kept": 5, "ts": 9_000} in run.visible["out"]
