"""What a slot answers of its operators, and that no question ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.control.live_messages import AskRows, RowsOfKeys
from onceflow.runtime.control.messages import Assignment
from onceflow.runtime.operators.processing.process import ProcessOperator
from onceflow.runtime.operators.stateless import Stateless
from onceflow.runtime.slot.live_rows import ANSWER_BYTES_MAX, rows_of_keys
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state_tables.live import as_bytes, of_bytes
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.types.columns_of_records import batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from tests.properties.test_keyed_process import Op, create
from tests.properties.test_object_states import Bought
from tests.properties.test_object_states import create as keeping_objects

AT: Any = SimpleNamespace(attempt=3, slot=1)
assert {"attempt", "slot"} <= set(Assignment.__struct_fields__)


def ask(state: str = "entries", operators: Any = None, bytes_max: int = ANSWER_BYTES_MAX) -> RowsOfKeys:
    harness = OperatorHarness(create, ["user", "shard"])
    ops = [Op(user, 0, "put", n, 10) for n, user in enumerate("abb")]
    harness.push(batch_from_records(ops, arrow_schema(Op)), [10] * 3)
    (operator,) = harness.subtasks
    keys = pa.table({"user": ["b", "x"], "shard": pa.array([0, 0], pa.int64())})
    described = create()._config.description
    asked = AskRows(17, "remember", state, described, as_bytes(keys))
    return rows_of_keys(AT, operators or {"remember": operator}, asked, bytes_max)


def test_the_rows_of_the_keys_that_are_there() -> None:
    answer = ask()
    assert (answer.attempt, answer.slot, answer.question, answer.problem) == (3, 1, 17, "")
    assert of_bytes(answer.rows).to_pylist() == [
        {"user": "b", "shard": 0, "map_key": "k1", "value": 1},
        {"user": "b", "shard": 0, "map_key": "k2", "value": 2},
    ]


class Raises(ProcessOperator):
    """Its state can't become a column."""

    def __init__(self) -> None:
        pass

    def peek(self, *_: Any) -> Any:
        raise ValueError("a value of a class of the user's")


def test_what_goes_wrong_is_the_answer() -> None:
    assert ask(operators={"remember": Raises()}).problem == "ValueError: a value of a class of the user's"


def test_what_can_not_be_asked_says_so() -> None:
    answer = ask(operators={"remember": Stateless(lambda records: records)})
    assert answer.problem.startswith("'remember' is a process, which has no live answers: leave --live")


def test_too_many_rows_are_refused() -> None:
    class Full(Raises):
        def peek(self, asked: AskedKeys) -> Any:
            asked.check_count(asked.rows_max)
            asked.check_count(asked.rows_max + 1)

    answer = ask(operators={"remember": Full()})
    assert answer.problem.startswith(
        "these keys have 65,537 rows or more, and a live answer has 65,536 at most"
    )
    assert answer.rows == b""


def test_an_answer_that_is_too_large_is_refused() -> None:
    answer = ask(bytes_max=10)
    assert answer.rows == b""
    assert "ask for fewer keys" in answer.problem


@pytest.mark.parametrize("state", ["value", "items", "timers"])
def test_a_state_in_which_nothing_is_has_no_rows(state: str) -> None:
    assert of_bytes(ask(state).rows).num_rows == 0


def test_objects_that_have_no_columns_are_bytes() -> None:
    harness = OperatorHarness(keeping_objects, ["user"])
    harness.push(batch_from_records([Bought("a", "tea")], arrow_schema(Bought)), [0])
    keys, described = pa.table({"user": ["a"]}), keeping_objects()._config.description
    asked = AskRows(17, "remember", "by_item", described, as_bytes(keys))
    answer = rows_of_keys(AT, {"remember": harness.subtasks[0]}, asked)
    (row,) = of_bytes(answer.rows).to_pylist()
    assert (row["user"], row["map_key"], type(row["value"])) == ("a", "tea", bytes)
