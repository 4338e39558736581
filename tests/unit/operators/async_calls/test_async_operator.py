"""An operator whose function answers when the test says so: what goes out, waits, and is in a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import Fatal, Retryable, UserFunctionError
from onceflow.runtime.functions.questions import Answer, Question
from onceflow.runtime.operators.async_calls.async_map import AsyncMap
from onceflow.runtime.operators.async_calls.async_operator import AsyncConfig, AsyncOperator
from onceflow.runtime.operators.async_calls.frozen_calls import TABLE
from onceflow.runtime.operators.async_calls.retry_policy import RetryPolicy
from onceflow.runtime.operators.failed_records import FAILED, ErrorPolicy
from onceflow.runtime.operators.operator import MAIN, FrozenState, OperatorContext, RestoredState
from onceflow.runtime.records import Records
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass(frozen=True)
class Order:
    id: int


@dataclass(frozen=True)
class Found:
    id: int
    name: str


SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
CONFIG = AsyncConfig("ask", RecordReader(Order), SCHEMA, has_event_time=True, capacity=2, timeout_ms=1_000)


def find(order: Order) -> Found:
    raise AssertionError("the test answers")


class Asked:
    """Calls that the test answers."""

    def __init__(self) -> None:
        self.questions: dict[int, Question] = {}
        self.answers: list[Answer] = []
        self.given_up: list[int] = []
        self.is_closed = False

    def ask(self, questions: Sequence[Question]) -> None:
        self.questions.update({question.argument.id: question for question in questions})

    @property
    def has_answers(self) -> bool:
        return bool(self.answers)

    def take(self) -> list[Answer]:
        taken, self.answers = self.answers, []
        return taken

    def give_up(self, number: int) -> None:
        self.given_up.append(number)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def close(self) -> None:
        self.is_closed = True

    def answer(self, id: int, result: Any = None, error: Exception | None = None) -> None:
        question = self.questions.pop(id)
        found = Found(id, f"n{id}") if result is None and error is None else result
        self.answers.append(Answer(question.number, question.attempt, found, error))


class Running:
    """One subtask, and what it has sent."""

    def __init__(self, config: AsyncConfig = CONFIG, states: Sequence[RestoredState] = ()) -> None:
        self.asked, self.clock, self.failed_count = Asked(), ManualClock(), 0
        self.sent: list[tuple[str, Any]] = []
        self.times: list[int] = []

        def calls(function: Any, at_once_max: int) -> Asked:
            assert (function, at_once_max) == (find, config.capacity)
            return self.asked

        def count_failed(rows: int, said: str) -> None:
            self.failed_count += rows

        context = OperatorContext(
            "ask", 0, 1, 8, range(8), self.clock, calls=calls, count_failed=count_failed
        )
        writer = RecordWriter.of(describe_record(Found))
        self.operator = AsyncOperator(config, AsyncMap("ask", find, writer, config.capacity))
        self.operator.open(context, self)
        if states:
            self.operator.restore(states)

    def emit(self, records: Records, tag: str = MAIN) -> None:
        self.sent += [(tag, row) for row in records.batch.to_pylist()]
        assert records.event_time is not None
        self.times += records.event_time.tolist()

    @property
    def ids(self) -> list[int]:
        return [row["id"] for tag, row in self.sent if tag == MAIN]

    def come(self, *ids: int) -> Running:
        batch = pa.RecordBatch.from_arrays([pa.array(ids, pa.int64())], schema=SCHEMA)
        self.operator.on_records(Records(batch, np.array(ids, np.int64) * 10))
        return self

    def go_on(self) -> int:
        wake_at_ms, now_ms = self.operator.wake_at_ms, self.clock.now_ms()
        return self.operator.on_clock(now_ms, 100) if wake_at_ms is not None and wake_at_ms <= now_ms else 0


def restored(state: FrozenState, groups: range = range(8)) -> RestoredState:
    rows = state.tables[TABLE].piece(0, 1_000)
    mine = pa.array([group in groups for group in rows.column("key_group").to_pylist()])
    return RestoredState(groups, {TABLE: lambda: iter([rows.filter(mine)])})


def test_answers_go_out_in_the_order_of_the_records_with_their_event_times() -> None:
    running = Running().come(1, 2, 3)
    assert list(running.asked.questions) == [1, 2]
    assert running.operator.is_full
    running.asked.answer(2)
    assert running.go_on() == 0
    running.asked.answer(1)
    assert running.go_on() == 2
    assert running.ids == [1, 2]
    assert running.times == [10, 20]
    assert list(running.asked.questions) == [3]
    assert not running.operator.is_full


def test_it_is_not_looked_at_while_nothing_has_come() -> None:
    running = Running()
    assert running.operator.wake_at_ms is None
    running.come(1)
    assert running.operator.wake_at_ms == 1_000, "its deadline"
    running.asked.answer(1)
    assert running.operator.wake_at_ms == 0
    unlimited = Running(replace(CONFIG, timeout_ms=None)).come(1)
    wake_at_ms = unlimited.operator.wake_at_ms
    assert wake_at_ms is not None, "something will be sent: a loop is not over"
    assert wake_at_ms > 60_000


@pytest.mark.parametrize("ordered", [True, False])
def test_a_snapshot_has_what_has_not_gone_out_and_another_subtask_asks_for_it(ordered: bool) -> None:
    config = replace(CONFIG, is_ordered=ordered, capacity=3)
    running = Running(config).come(1, 2, 3, 4)
    running.asked.answer(1)
    running.asked.answer(3)
    running.go_on()
    left = [2, 3, 4] if ordered else [2, 4]
    assert running.ids == ([1] if ordered else [1, 3])
    state = running.operator.snapshot()
    again = Running(config, [restored(state)])
    assert sorted(again.asked.questions) == left
    for id in left:
        again.asked.answer(id)
    again.go_on()
    assert again.ids == left
    assert again.times == [10 * id for id in left]


def test_at_another_parallelism_each_row_is_asked_by_one() -> None:
    state = Running(replace(CONFIG, capacity=9)).come(*range(1, 8)).operator.snapshot()
    parts = [Running(CONFIG, [restored(state, groups)]) for groups in (range(3), range(3, 8))]
    rows = [[call.argument.id for call in part.operator._book.in_order()] for part in parts]
    assert rows[0] + rows[1] == list(range(1, 8))
    assert all(rows)


def test_rows_of_a_stream_without_event_time_are_refused_in_one_with() -> None:
    plain = Running(replace(CONFIG, has_event_time=False))
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int64())], schema=SCHEMA)
    plain.operator.on_records(Records(batch))
    with pytest.raises(Fatal, match="without event time"):
        Running(CONFIG, [restored(plain.operator.snapshot())])


def test_an_error_fails_the_attempt_and_names_the_record() -> None:
    running = Running().come(1)
    running.asked.answer(1, error=ValueError("no such order"))
    with pytest.raises(UserFunctionError, match=r"find failed on the record Order\(id=1\).*no such order"):
        running.go_on()


def test_a_record_that_is_not_answered_in_time_is_a_reason_to_try_again() -> None:
    running = Running().come(1)
    running.clock.advance(1_000)
    with pytest.raises(Retryable, match="no answer within 1 s"):
        running.go_on()
    assert running.asked.given_up == [0]


def test_failed_records_go_aside_in_their_place() -> None:
    policy = ErrorPolicy("find", SCHEMA)
    running = Running(replace(CONFIG, capacity=4, on_error=policy)).come(1, 2, 3)
    running.asked.answer(1)
    running.asked.answer(2, error=ValueError("no"))
    running.go_on()
    running.clock.advance(1_000)
    running.go_on()
    assert running.ids == [1]
    failed = [(row["record"]["id"], row["error"]) for tag, row in running.sent if tag == FAILED]
    assert failed == [(2, "ValueError: no"), (3, "TimeoutError: no answer within 1 s")]
    assert running.failed_count == 2
    assert running.operator.wake_at_ms is None


def test_a_wrong_result_names_what_it_was_for() -> None:
    running = Running(replace(CONFIG, on_error=ErrorPolicy("find", None))).come(1)
    running.asked.answer(1, result=Found(1, 5))  # type: ignore[arg-type]
    with pytest.raises(UserFunctionError, match="find for the record"):
        running.go_on()


def test_it_asks_again_after_a_pause() -> None:
    running = Running(replace(CONFIG, retries=RetryPolicy.times(2), timeout_ms=None)).come(1)
    for _ in range(2):
        running.asked.answer(1, error=OSError("away"))
        running.go_on()
        assert running.asked.questions == {}
        wake_at_ms = running.operator.wake_at_ms
        assert wake_at_ms is not None
        running.clock.advance(wake_at_ms - running.clock.now_ms())
        running.go_on()
    running.asked.answer(1)
    running.go_on()
    assert running.ids == [1]


def test_its_end_is_that_of_its_calls() -> None:
    running = Running()
    running.operator.close()
    assert running.asked.is_closed
