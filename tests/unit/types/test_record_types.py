"""What is found out about a record type, and what is refused."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import ClassVar, NamedTuple

import pyarrow as pa
import pytest

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.columns_of_records import batch_from_records
from onceflow.runtime.types.record_types import arrow_schema, describe_record
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.value_types import Default


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 7


NONE: list[Point] = []


class Named(NamedTuple):
    name: str
    points: list[Point] = NONE


@dataclass
class Mixed:
    first: int
    _: KW_ONLY
    key: str
    points: list[Point] = field(default_factory=list)
    kind: ClassVar[str] = "mixed"
    total: int = field(init=False, default=0)


@dataclass
class BehindInitVar:
    first: int
    factor: InitVar[int] = 10
    second: int = 2

    def __post_init__(self, factor: int) -> None:
        self.second *= factor


@dataclass
class NeedsInitVar:
    first: int
    factor: InitVar[int]


@dataclass
class Chained:
    next: Chained | None = None


def test_a_dataclass_is_described_with_what_it_takes() -> None:
    found = describe_record(Mixed)
    assert found.schema == pa.schema(
        [
            pa.field("first", pa.int64(), nullable=False),
            pa.field("key", pa.string(), nullable=False),
            pa.field("points", pa.list_(found.fields[2].type.items.field("item")), nullable=False),
        ]
    )
    assert [(f.name, f.by_keyword) for f in found.fields] == [
        ("first", False),
        ("key", True),
        ("points", True),
    ]
    assert found.defaults == {"points": Default(factory=list)}
    assert not found.is_immutable
    assert describe_record(Point).is_immutable
    assert describe_record(Point).defaults == {"y": Default(7)}


def test_a_default_of_a_factory_is_made_anew_each_time() -> None:
    default = describe_record(Mixed).defaults["points"]
    default.make().append(1)
    assert default.make() == []


def test_a_default_of_none_is_a_default() -> None:
    assert describe_record(Noted).defaults == {"note": Default(None)}


@dataclass
class Noted:
    name: str
    note: str | None = None


def test_a_named_tuple_and_a_nested_type() -> None:
    found = describe_record(Named)
    assert found.defaults == {"points": Default([])}
    items = found.fields[1].type.items
    assert items is not None
    assert items.record is not None
    assert items.record.of is Point


@pytest.mark.parametrize("record", [Mixed(1, key="k", points=[Point(2)]), Mixed(1, key="k")])
def test_keyword_only_fields_are_given_by_keyword(record: Mixed) -> None:
    batch = batch_from_records([record], arrow_schema(Mixed))
    assert RecordReader(Mixed).read(batch) == [record]


def test_a_field_behind_an_init_var_does_not_take_its_place() -> None:
    batch = pa.RecordBatch.from_pylist([{"first": 1, "second": 3}], arrow_schema(BehindInitVar))
    assert RecordReader(BehindInitVar).read(batch) == [BehindInitVar(1, second=3)]
    assert dataclasses.asdict(BehindInitVar(1, second=3)) == {"first": 1, "second": 30}


def test_an_init_var_that_must_be_given_is_refused() -> None:
    with pytest.raises(GraphError, match=r"NeedsInitVar\.factor is an InitVar, .*: give it a default"):
        describe_record(NeedsInitVar)


def test_a_type_that_contains_itself_is_refused() -> None:
    with pytest.raises(GraphError, match="Chained contains itself, which has no Arrow type"):
        describe_record(Chained)


def test_an_annotation_that_can_not_be_resolved_is_refused() -> None:
    @dataclass
    class Local:
        x: NotThere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(GraphError, match="Local has an annotation that can't be resolved"):
        describe_record(Local)
