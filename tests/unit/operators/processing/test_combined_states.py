"""ReducingState and AggregatingState: what they keep, refuse, and give back."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import GraphError
from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction
from onceflow.runtime.operators.processing.combined_states import AggregatingState, ReducingState
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader
from tests.unit.state.test_handles import bound


@dataclass(frozen=True, slots=True)
class Score:
    user: int
    points: int


@dataclass(frozen=True, slots=True)
class Best:
    user: int
    total: int | None
    longest: list[int] | None


class Longest(AggregateFunction[int, list[int], list[int]]):
    """The points in order, in a list that `add` changes in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def merge(self, accumulator_a: list[int], accumulator_b: list[int]) -> list[int]:
        raise AssertionError("one key has one accumulator")

    def get_result(self, accumulator: list[int]) -> list[int]:
        return sorted(accumulator)


class Scores(KeyedProcess[int, Score, Best]):
    total = ReducingState("total", int, operator.add, ttl=100)
    longest = AggregatingState("longest", Longest(), ttl=1_000)

    def process(self, score: Score, ctx: Ctx) -> Iterator[Best]:
        if score.points < 0:
            self.total.clear()
            self.longest.clear()
        elif score.points:
            self.total.add(score.points)
            self.longest.add(score.points)
        else:
            yield Best(score.user, self.total.get(), self.longest.get())


class Player:
    """The operator, restored as often as it is asked."""

    def __init__(self, states: Any = None, parallelism: int = 1) -> None:
        def create() -> ProcessOperator:
            made, reader = RecordWriter(arrow_schema(Best)), RecordReader(Score)
            config = ProcessConfig("scores", Scores(), ("user",), arrow_schema(Score), made, reader, True)
            return ProcessOperator(config)

        self.harness = OperatorHarness(create, ["user"], parallelism, 8, states, ManualClock())

    def plays(self, at: int, *scores: tuple[int, int]) -> dict[int, tuple[int | None, list[int] | None]]:
        self.harness.out.emitted.clear()
        batch = pa.record_batch({"user": [u for u, _ in scores], "points": [p for _, p in scores]})
        self.harness.push(batch.cast(arrow_schema(Score)), [at] * len(scores))
        return {row["user"]: (row["total"], row["longest"]) for row in self.harness.rows()}


def test_each_key_has_what_was_added_for_it_over_restores_and_rescales() -> None:
    player = Player()
    player.plays(0, (1, 5), (2, 1), (1, 3))
    states = player.harness.snapshot()
    player.plays(0, (1, 100))  # after the barrier: the list of the snapshot is not this one
    assert player.plays(0, (1, 0)) == {1: (108, [3, 5, 100])}
    again = Player(states, parallelism=3)
    assert again.plays(0, (1, 0), (2, 0), (3, 0)) == {1: (8, [3, 5]), 2: (1, [1]), 3: (None, None)}
    assert again.plays(0, (2, 4), (2, 0)) == {2: (5, [1, 4])}


def test_clear_and_ttl_forget_and_adding_is_writing() -> None:
    player = Player()
    player.plays(0, (1, 5), (2, 1))
    assert player.plays(0, (2, -1), (2, 0)) == {2: (None, None)}
    player.plays(60, (1, 1))
    assert player.plays(130, (1, 0)) == {1: (6, [1, 5])}
    assert player.plays(160, (1, 0)) == {1: (None, [1, 5])}
    assert player.plays(160, (1, 2), (1, 0)) == {1: (2, [1, 2, 5])}


def test_a_value_of_another_type_is_refused_at_the_line_that_adds_it() -> None:
    class Wrong(Scores):
        def process(self, score: Score, ctx: Ctx) -> Iterator[Best]:
            self.total.add("many")  # type: ignore[arg-type]
            yield Best(score.user, None, None)

    made, reader = RecordWriter(arrow_schema(Best)), RecordReader(Score)
    config = ProcessConfig("scores", Wrong(), ("user",), arrow_schema(Score), made, reader, True)
    harness = OperatorHarness(lambda: ProcessOperator(config), ["user"], 1, 8, None, ManualClock())
    with pytest.raises(Exception, match="state 'total' is declared int but is set to 'many'"):
        harness.push(pa.record_batch({"user": [1], "points": [1]}).cast(arrow_schema(Score)), [0])


class Untyped(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self):  # type: ignore[no-untyped-def]
        return 0

    def add(self, value: Any, accumulator: Any) -> Any: ...
    def merge(self, accumulator_a: Any, accumulator_b: Any) -> Any: ...
    def get_result(self, accumulator: Any) -> Any: ...


def test_what_can_not_be_kept_is_refused_where_it_is_declared() -> None:
    with pytest.raises(GraphError, match="state 'n': reduce=3 can't be called: write a function"):
        ReducingState("n", int, 3)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"state 'n': <class .*Longest'> is no AggregateFunction"):
        AggregatingState("n", Longest)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"state 'n': Untyped.create_accumulator has no return annotation"):
        AggregatingState("n", Untyped())
    with pytest.raises(GraphError, match="state name"):
        ReducingState("", int, max)


def test_a_value_has_a_default_for_those_who_ask() -> None:
    count = bound(ValueState("count", int))
    assert (count.get(), count.get(0)) == (None, 0)
    count.set(0)
    assert count.get(7) == 0
