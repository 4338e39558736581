"""What a user's type does not take names the row and the field; nothing of it is a traceback."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NoReturn

import attrs
import numpy as np
import pyarrow as pa
import pydantic
import pytest

from onceflow.runtime.errors import Retryable, UserFunctionError
from onceflow.runtime.operators.stateless import FilterRecords
from onceflow.runtime.records import Origin, Records
from onceflow.runtime.types.records_of_columns import RecordReader, UnmadeRecordError


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Colored:
    color: Color | None


@attrs.frozen
class Warm:
    celsius: float = attrs.field(validator=attrs.validators.ge(0))


class Account(pydantic.BaseModel):
    name: str
    balance: int = pydantic.Field(ge=0, alias="theBalance")

    @pydantic.model_validator(mode="after")
    def is_known(self) -> Account:
        if self.name == "nobody":
            raise ValueError("nobody has no account")
        return self


@dataclass
class Away:
    x: int

    def __post_init__(self) -> NoReturn:
        raise Retryable("the registry is away")


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("record_type", "rows", "row", "sentence"),
    [
        (Colored, batch(color=["red", None, "blue"]), 2, "field 'color': 'blue' is none of 'red'"),
        (Warm, batch(celsius=[1.0, -1.0]), 1, "'celsius' must be >= 0"),
        (
            Account,
            batch(name=["a", "b"], balance=[1, -1]),
            1,
            "field 'theBalance': Input should be greater than or equal to 0",
        ),
        (Account, batch(name=["nobody"], balance=[1]), 0, "Value error, nobody has no account"),
        (
            Account,
            batch(name=pa.array([None], pa.string()), balance=[-1]),
            0,
            r"field 'name': Input should be a valid string \(and 1 more\)",
        ),
    ],
)
def test_the_first_row_that_a_type_does_not_take_is_named(
    record_type: Any, rows: pa.RecordBatch, row: int, sentence: str
) -> None:
    with pytest.raises(UnmadeRecordError, match=sentence) as caught:
        RecordReader(record_type).read(rows)
    assert caught.value.row == row


def records(rows: pa.RecordBatch) -> Records:
    origin = Origin(("t-0",), np.zeros(len(rows), np.uint16), np.arange(len(rows)) + 40)
    return Records(rows, None, None, origin)


def test_a_failing_validator_names_operator_record_and_field() -> None:
    keep = FilterRecords("rich", lambda account: True, RecordReader(Account))
    with pytest.raises(UserFunctionError) as caught:
        keep(records(batch(name=["a", "b"], balance=[1, -1])))
    assert str(caught.value) == (
        "operator 'rich': Account can't be made of the record in t-0 at offset 41, {'name': 'b', 'balance': "
        "-1}: field 'theBalance': Input should be greater than or equal to 0"
    )
    assert caught.value.record == "t-0 at offset 41"


def test_what_the_user_raises_on_purpose_stays_what_it_is() -> None:
    with pytest.raises(Retryable, match="the registry is away"):
        FilterRecords("f", bool, RecordReader(Away))(records(batch(x=[1])))
