"""Accumulators, results and records of the user's types, in windows and in a reduce, across a restore."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pyarrow as pa
import pydantic
import pytest

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.reduce import RollingReduce
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema, describe_record
from onceflow.runtime.types.value_types import Scale


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Sale:
    user: UUID
    price: Annotated[Decimal, Scale(2)]
    color: Color


USER = UUID(int=5)
SALES = [Sale(USER, Decimal("1.50"), Color.RED), Sale(USER, Decimal("0.25"), Color.BLUE)]
SCHEMA = arrow_schema(Sale)


class Seen(AggregateFunction[Sale, dict[Color, Decimal], tuple[Annotated[Decimal, Scale(4)], Color]]):
    def create_accumulator(self) -> dict[Color, Decimal]:
        return {}

    def add(self, value: Sale, accumulator: dict[Color, Decimal]) -> dict[Color, Decimal]:
        accumulator[value.color] = accumulator.get(value.color, Decimal(0)) + value.price
        return accumulator

    def merge(self, accumulator_a: Any, accumulator_b: Any) -> Any:
        return accumulator_a | accumulator_b

    def get_result(self, accumulator: dict[Color, Decimal]) -> tuple[Annotated[Decimal, Scale(4)], Color]:
        assert all(isinstance(color, Color) for color in accumulator)
        return sum(accumulator.values(), Decimal(0)), max(accumulator, key=lambda color: accumulator[color])


def batch(*sales: Sale) -> pa.RecordBatch:
    return RecordWriter.of(describe_record(Sale)).write(sales)


def test_accumulators_and_results_keep_their_types_across_a_restore() -> None:
    config = WindowAggregate("seen", ("user",), tumbling(10), {"seen": Seen()}, SCHEMA, record_type=Sale)
    first = OperatorHarness(config.create, ["user"])
    first.push(batch(SALES[0]), [1])
    again = OperatorHarness(config.create, ["user"], 2, states=first.snapshot())
    again.push(batch(SALES[1]), [2])
    again.finish()
    (row,) = again.rows()
    assert row["user"] == str(USER)
    assert row["seen"] == {"f0": Decimal("1.7500"), "f1": "red"}


class Account(pydantic.BaseModel):
    user: UUID
    balance: int = pydantic.Field(ge=0)


def poorer(so_far: Account, account: Account) -> Account:
    return Account(user=so_far.user, balance=so_far.balance - account.balance)


def unchecked(so_far: Account, account: Account) -> Account:
    return Account.model_construct(user=so_far.user, balance=-1)


def accounts(*balances: int) -> pa.RecordBatch:
    return pa.record_batch([[str(USER)] * len(balances), list(balances)], schema=arrow_schema(Account))


def test_a_reduce_of_models_runs_their_validators() -> None:
    config = RollingReduce("poorer", ("user",), poorer, arrow_schema(Account), Account)
    first = OperatorHarness(config.create, ["user"])
    first.push(accounts(9, 2), [1, 2])
    again = OperatorHarness(config.create, ["user"], 2, states=first.snapshot())
    again.push(accounts(3), [3])
    assert [row["balance"] for row in [*first.rows(), *again.rows()]] == [9, 7, 4]
    with pytest.raises(UserFunctionError, match=r"poorer failed on .*: ValidationError: field 'balance'"):
        again.push(accounts(8), [4])
    with pytest.raises(UserFunctionError, match=r"'poorer': Account can't be made of .*'balance': Input"):
        again.push(accounts(-1), [4])


def test_state_that_a_type_does_not_take_any_more_is_named() -> None:
    before = RollingReduce("poorer", ("user",), unchecked, arrow_schema(Account), Account)
    first = OperatorHarness(before.create, ["user"])
    first.push(accounts(9, 2), [1, 2])
    with pytest.raises(UserFunctionError, match="unchecked: a Account of its state: field 'balance': Input"):
        OperatorHarness(before.create, ["user"], states=first.snapshot())
