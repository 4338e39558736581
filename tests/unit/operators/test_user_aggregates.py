"""AggregateFunction and reduce: the user's own code over typed records, stored typed."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction, count
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.reduce import RollingReduce
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.records import Origin
from onceflow.runtime.testing.harness import OperatorHarness, stored
from onceflow.runtime.types.record_types import arrow_schema


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    amount: int
    item: str | None


@dataclass
class Mutable:
    user: str
    amount: int


class Spread(NamedTuple):
    low: int
    high: int


class Range(AggregateFunction[Purchase, Spread | None, int | None]):
    """Highest less lowest amount. Its empty accumulator is None."""

    def create_accumulator(self) -> Spread | None:
        return None

    def add(self, value: Purchase, accumulator: Spread | None) -> Spread | None:
        low, high = accumulator or (value.amount, value.amount)
        return Spread(min(low, value.amount), max(high, value.amount))

    def merge(self, accumulator_a: Spread | None, accumulator_b: Spread | None) -> Spread | None:
        raise NotImplementedError

    def get_result(self, accumulator: Spread | None) -> int | None:
        return None if accumulator is None or accumulator.high == 13 else accumulator.high - accumulator.low


class Items(AggregateFunction[Purchase, list[str], list[str]]):
    """Changes its accumulator in place."""

    def create_accumulator(self) -> list[str]:
        return []

    def add(self, value: Purchase, accumulator: list[str]) -> list[str]:
        if value.item is None:
            raise ValueError("no item")
        accumulator.append(value.item)
        return accumulator

    def merge(self, accumulator_a: list[str], accumulator_b: list[str]) -> list[str]:
        return accumulator_a + accumulator_b

    def get_result(self, accumulator: list[str]) -> list[str]:
        return sorted(accumulator)


SCHEMA = arrow_schema(Purchase)


def batch(*rows: tuple) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def config(**aggregates) -> WindowAggregate:
    return WindowAggregate("totals", ("user",), tumbling(10), aggregates, SCHEMA, record_type=Purchase)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_user_aggregates_with_a_restore_in_the_middle(parallelism):
    configured = config(n=count(), range=Range(), items=Items())
    h = OperatorHarness(configured.create, ["user"], 2)
    h.push(batch(("a", 5, "x"), ("b", 1, "y"), ("a", 2, "w")), [1, 2, 3])
    states = [operator.snapshot() for operator in h.subtasks]  # becomes bytes only after more rows came
    h.push(batch(("a", 1000, "after the snapshot")), [4])
    states = [stored(state) for state in states]
    h = OperatorHarness(configured.create, ["user"], parallelism, states=states)
    h.push(batch(("a", 9, "v"), ("b", 13, "z")), [1, 2])
    h.finish()
    assert sorted(h.rows(), key=lambda row: row["user"]) == [
        {"user": "a", "window_start": 0, "window_end": 10, "n": 3, "range": 7, "items": ["v", "w", "x"]},
        {"user": "b", "window_start": 0, "window_end": 10, "n": 2, "range": None, "items": ["y", "z"]},
    ]


def test_a_failing_user_function_names_operator_record_and_line():
    h = OperatorHarness(config(items=Items()).create, ["user"])
    origin = Origin(("events-3",), np.zeros(2, np.uint16), np.array([16, 17]))
    with pytest.raises(
        UserFunctionError,
        match=r"(?s)'totals'.*add.*events-3 at offset 17.*test_user_aggregates.py:\d+.*no item",
    ):
        h.push(batch(("a", 1, "x"), ("b", 2, None)), [1, 2], origin)


def test_a_result_of_another_type_than_declared_is_refused():
    class Wrong(Range):
        def get_result(self, accumulator: Spread | None) -> int:
            return "seven"  # type: ignore[return-value]

    h = OperatorHarness(config(wrong=Wrong()).create, ["user"])
    h.push(batch(("a", 1, "x")), [1])
    with pytest.raises(
        UserFunctionError, match=r"Wrong.get_result: .*'wrong' is declared int but is 'seven'"
    ):
        h.finish()


def test_an_accumulator_without_a_declared_type_is_refused_when_the_graph_is_built():
    class Untyped(Items):
        def create_accumulator(self):
            return []

    with pytest.raises(GraphError, match=r"Untyped.create_accumulator has no return annotation"):
        config(x=Untyped())


# --- Reduce ----------------------------------------------------------------------------------------


def larger(so_far: Purchase, purchase: Purchase) -> Purchase:
    return purchase if purchase.amount > so_far.amount else so_far


def add_in_place(so_far: Mutable, more: Mutable) -> Mutable:
    so_far.amount += more.amount
    return so_far


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_rolling_reduce_sends_every_result_and_goes_on_after_a_restore(parallelism):
    configured = RollingReduce("largest", ("user",), larger, SCHEMA, Purchase)
    h = OperatorHarness(configured.create, ["user"], 2)
    h.push(batch(("a", 5, "x"), ("b", 1, None), ("a", 2, "w"), ("a", 7, "v")), [1, 2, 3, 4])
    a = [row["amount"] for row in h.rows() if row["user"] == "a"]
    assert a == [5, 5, 7]
    h = OperatorHarness(configured.create, ["user"], parallelism, states=h.snapshot())
    h.push(batch(("a", 6, "u"), ("b", 2, "t"), ("c", 3, "s")), [5, 6, 7])
    assert (
        sorted(h.rows(), key=lambda row: row["user"])
        == batch(("a", 7, "v"), ("b", 2, "t"), ("c", 3, "s")).to_pylist()
    )


def test_rolling_reduce_in_place_still_sends_each_result():
    schema = arrow_schema(Mutable)
    configured = RollingReduce("sum", ("user",), add_in_place, schema, Mutable)
    h = OperatorHarness(configured.create, ["user"])
    rows = pa.RecordBatch.from_pylist([{"user": "a", "amount": n} for n in (1, 2, 3)], schema)
    h.push(rows, [1, 2, 3])
    states = h.snapshot()
    h.push(rows, [4, 5, 6])
    assert [row["amount"] for row in h.rows()] == [1, 3, 6, 7, 9, 12]
    h = OperatorHarness(configured.create, ["user"], states=states)
    h.push(rows, [4, 5, 6])
    assert [row["amount"] for row in h.rows()] == [7, 9, 12]


def test_rolling_reduce_keeps_event_time_and_origin():
    h = OperatorHarness(RollingReduce("largest", ("user",), larger, SCHEMA, Purchase).create, ["user"])
    origin = Origin(("t-0",), np.zeros(2, np.uint16), np.array([3, 4]))
    h.push(batch(("a", 5, "x"), ("a", 1, "y")), [11, 12], origin)
    [(_, records)] = h.out.emitted
    assert records.event_time.tolist() == [11, 12]
    assert records.origin.offset.tolist() == [3, 4]
    assert records.key_hash is None


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_windowed_reduce_sends_one_record_per_key_and_window(parallelism):
    configured = WindowReduce("largest", ("user",), tumbling(10), larger, SCHEMA, record_type=Purchase)
    h = OperatorHarness(configured.create, ["user"], 2)
    h.push(batch(("a", 5, "x"), ("b", 1, "y"), ("a", 2, "w"), ("a", 3, "next")), [1, 2, 3, 11])
    h = OperatorHarness(configured.create, ["user"], parallelism, states=h.snapshot())
    h.push(batch(("a", 6, "z"), ("b", 0, None)), [1, 2])
    h.finish()
    expected = batch(("a", 3, "next"), ("a", 6, "z"), ("b", 1, "y")).to_pylist()
    assert sorted(h.rows(), key=lambda row: (row["user"], row["amount"])) == expected


def test_a_failing_reduce_names_the_record():
    def broken(so_far: Purchase, purchase: Purchase) -> Purchase:
        raise KeyError(purchase.item)

    h = OperatorHarness(RollingReduce("r", ("user",), broken, SCHEMA, Purchase).create, ["user"])
    origin = Origin(("t-0",), np.zeros(2, np.uint16), np.array([3, 4]))
    with pytest.raises(UserFunctionError, match=r"(?s)'r'.*broken.*t-0 at offset 4"):
        h.push(batch(("a", 5, "x"), ("a", 1, "y")), [11, 12], origin)


def test_rows_without_a_record_type_are_named_tuples():
    configured = RollingReduce("r", ("user",), lambda a, b: b._replace(amount=a.amount + b.amount), SCHEMA)
    h = OperatorHarness(configured.create, ["user"])
    h.push(batch(("a", 5, "x"), ("a", 1, "y")), [1, 2])
    h = OperatorHarness(configured.create, ["user"], states=h.snapshot())
    h.push(batch(("a", 1, "z")), [3])
    assert h.rows() == batch(("a", 7, "z")).to_pylist()
