"""Each type of docs/types.md as records of a program, as what is made up, collected and shown."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.runtime.errors import GraphError
from tests.conformance.types_table import ROWS, Account, Cancelled, Color, Placed, TypeRow, record_type

TYPES = pytest.mark.parametrize("row", ROWS, ids=[row.said for row in ROWS])


def ran(job: Job) -> str:
    """What it prints where there is no terminal."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        job.run(master="threads[1]")
    return shown.getvalue()


@TYPES
def test_records_come_out_as_they_went_in(row: TypeRow) -> None:
    """Each as elements, as a list, as what a function yields, and through a function of the user's; and what
    is printed is the JSON that the format would write."""
    of = record_type(row.python)
    records = [of(example.value) for example in row.examples]

    def yielded() -> Iterator[Any]:
        yield from records

    def same(record: Any) -> Any:
        return record

    same.__annotations__["return"] = of
    job = Job("types")
    elements = job.from_elements(*records)
    collected = elements.collect(), elements.map(same).collect()
    more = job.from_records(records, type=of).collect(), job.from_records(yielded, type=of).collect()
    elements.print()
    shown = ran(job)
    for found in (*collected, *more):
        assert list(found) == records
    assert [json.loads(line)["x"] for line in shown.splitlines()] == [
        json.loads(example.json) for example in row.examples
    ]


def alike(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether they are the same records in some order: a dict in one has no hash."""
    return len(some) == len(others) and all(list(some).count(x) == list(others).count(x) for x in some)


@TYPES
def test_records_are_made_up(row: TypeRow) -> None:
    """The same seed makes the same; values that are given are taken; a function of the number, too."""
    of = record_type(row.python)
    given = [example.value for example in row.examples]

    def made(number: int) -> Any:
        return of(given[number % len(given)])

    made.__annotations__["return"] = of
    job = Job("types")
    first = job.data_generator(of, count=30, seed=4).collect()
    again = job.data_generator(of, count=30, seed=4).collect()
    chosen = job.data_generator(of, count=30, fields={"x": given}).collect()
    called = job.data_generator(made, count=len(given)).collect()
    ran(job)
    assert alike(first, again)
    assert all(isinstance(record, of) for record in first)
    assert all(record.x in given for record in chosen)
    assert alike(called, [of(value) for value in given])


def as_dict(value: Any) -> Any:
    """A record, and what is in it, as somebody writes it by hand."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: as_dict(each) for name, each in value._asdict().items()}
    return value


@TYPES
def test_dicts_are_records_of_the_type_that_is_said(row: TypeRow) -> None:
    of = record_type(row.python)
    records = [of(example.value) for example in row.examples]
    job = Job("types")
    found = job.from_records([as_dict(record) for record in records], type=of).collect()
    ran(job)
    assert list(found) == records


def test_a_union_is_told_by_its_tag_in_a_dict() -> None:
    of = record_type(list[Placed | Cancelled])
    job = Job("types")
    rows = [{"x": [{"kind": "placed", "amount": 3}, {"kind": "cancelled", "reason": Color.RED}]}]
    found = job.from_records(rows, type=of).collect()
    ran(job)
    assert found[0].x == [Placed("placed", 3), Cancelled("cancelled", Color.RED)]


@dataclass(frozen=True)
class Inner:
    x: int
    y: str = "d"


@dataclass(frozen=True)
class Outer:
    a: int
    inner: Inner
    more: list[Inner] = field(default_factory=list)


RIGHT = {"a": 1, "inner": {"x": 1}}
MAPS = pa.schema([("a", pa.list_(pa.struct([("b", pa.int64())])))])


@pytest.mark.parametrize(
    ("rows", "of", "said"),
    [
        ([RIGHT | {"innr": 1}], Outer, "makes no Outer: Outer has no field 'innr' (did you mean 'inner'?)"),
        ([RIGHT | {"inner": {"z": 1}}], Outer, "makes no Outer: in 'inner' Inner has no field 'z'"),
        ([RIGHT | {"more": [{"y": "2"}]}], Outer, "in 'more[]' Inner needs 'x', which is not there"),
        ([RIGHT, {"a": 1}], Outer, "record 2: {'a': 1} makes no Outer: Outer needs 'inner'"),
        ([RIGHT | {"inner": 3}], Outer, "field 'inner' is declared Inner but is 3 (int): an int is no Inner"),
        ([RIGHT | {"inner": {"x": "1"}}], Outer, "declared Inner but is Inner(x='1', y='d') (Inner): a str"),
        ([{"x": [{"kind": "lost"}]}], record_type(list[Placed | Cancelled]),
         "in 'x[]' 'kind' is 'lost', and has to be one of 'placed', 'cancelled'"),
        ([{"x": {"userId": 0}}], record_type(Account), "field 'userId': Input should be greater than 0"),
        ([{"a": [{"b": 1, "c": 2}]}], MAPS, "field 'a[]' has 'c', which is none of its fields"),
        ([{"a": Color.RED}], None, "what column a Color in a dict makes is not known: say type="),
        ([{"a": 1}, {"a": "x"}], None, "field 'a' has values of several types"),
    ],
)  # fmt: skip
def test_a_dict_that_does_not_fit_is_told_with_the_place(rows: Any, of: Any, said: str) -> None:
    with pytest.raises(GraphError) as caught:
        Job("types").from_records(rows, type=of)
    assert said in str(caught.value)


@pytest.mark.parametrize("values", [[Decimal("1.5"), None], [dt.time(1)], [dt.timedelta(1)]])
def test_single_values_are_elements(values: list[Any]) -> None:
    job = Job("types")
    found = job.from_elements(*values).collect()
    ran(job)
    assert list(found) == [{"value": value} for value in values]


@pytest.mark.parametrize("value", [UUID(int=5), Color.RED])
def test_a_value_that_a_column_alone_would_change_is_refused(value: Any) -> None:
    with pytest.raises(GraphError, match="a dataclass or a NamedTuple that has it as a field"):
        Job("types").from_elements(value)
    with pytest.raises(GraphError, match="would be string: give a dataclass that has it as a field"):
        Job("types").from_elements(value, type=type(value))
