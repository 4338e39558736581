"""What Avro has no type for: how it is written, and what of a writer's values is none of the user's type."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest

from onceflow import Scale
from onceflow.connectors.formats import Avro
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.records_of_columns import RecordReader


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Line:
    item: UUID = field(metadata={"alias": "itemId"})
    took: dt.timedelta = dt.timedelta(seconds=1)
    price: Annotated[Decimal, Scale(2)] = Decimal("9.99")


@dataclass(frozen=True)
class Placed:
    kind: Literal["placed"]
    lines: list[Line]


@dataclass(frozen=True)
class Cancelled:
    kind: Literal["cancelled"]


@dataclass(frozen=True)
class Row:
    user: str
    event: Placed | Cancelled = Cancelled("cancelled")
    colors: set[Color] = field(default_factory=lambda: {Color.RED, Color.BLUE})
    by_day: dict[dt.date, Line | None] = field(default_factory=dict, metadata={"alias": "byDay"})
    pair: tuple[Color, dt.timedelta] | None = None
    note: Any = None


ID = UUID(int=7)
ROWS = [
    Row("a"),
    Row(
        "b",
        Placed("placed", [Line(ID), Line(ID, dt.timedelta(microseconds=-1))]),
        {Color.BLUE},
        {dt.date(2026, 1, 1): Line(ID), dt.date(1999, 1, 1): None},
        (Color.RED, dt.timedelta.min // 100),
        {"any": [1]},
    ),
]
WIRE = RecordWriter.of(describe_record(Row))


def test_deeply_nested_values_come_back() -> None:
    avro = Avro(Row, framing="none")
    batch = WIRE.write(ROWS)
    decoded = avro.decoder().decode(avro.encoder(WIRE.schema).encode(batch))
    assert not decoded.bad
    assert decoded.batch == batch
    assert RecordReader(Row).read(decoded.batch) == ROWS
    some = avro.decoder(frozenset({"by_day", "user"})).decode(avro.encoder(WIRE.schema).encode(batch))
    assert some.batch == batch.select(["user", "by_day"])


def test_what_a_writer_does_not_have_is_the_default_of_the_type() -> None:
    less = {"type": "record", "name": "Less", "fields": [{"name": "user", "type": "string"}]}
    found = Avro(Row, registry={1: less}).decoder().decode([b"\0\0\0\0\1\2a"])
    assert RecordReader(Row).read(found.batch) == [Row("a")]


WRITTEN = {
    "type": "record",
    "name": "Written",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "color", "type": {"type": "enum", "name": "C", "symbols": ["red", "green"]}},
        {"name": "id", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": "string"},
    ],
}


@dataclass(frozen=True)
class Read:
    user: str
    color: Color
    id: UUID
    tags: frozenset[Color]
    note: Any


def test_what_is_no_value_of_the_type_makes_its_row_bad() -> None:
    columns: dict[str, list[Any]] = {
        "user": ["a", "b", "c", "d", "e"],
        "color": ["red", "green", "red", "red", "red"],
        "id": [ID.hex.upper(), ID.hex, "7", ID.hex, ID.hex],
        "tags": [["red", "blue", "red"], ["red"], ["red"], ["green"], []],
        "note": ['{"a": 1}', "1", "1", "1", "{"],
    }
    batch = pa.record_batch(columns)
    values = Avro(WRITTEN, registry={1: WRITTEN}).encoder(batch.schema).encode(batch).to_pylist()
    decoded = Avro(Read, registry={1: WRITTEN}).decoder().decode([b"\0\0\0\0\1", *values])
    assert decoded.rows is not None
    assert decoded.rows.tolist() == [1]
    assert decoded.batch.to_pylist() == [
        {"user": "a", "color": "red", "id": str(ID), "tags": ["blue", "red"], "note": '{"a":1}'}
    ]
    assert RecordReader(Read).read(decoded.batch) == [Read("a", Color.RED, ID, frozenset(Color), {"a": 1})]
    reasons = {each.row: each.reason for each in decoded.bad}
    assert reasons.pop(0)
    assert reasons == {
        2: "color: 'green' is none of 'red', 'blue'",
        3: "id: '7' is no UUID",
        4: "tags: 'green' is none of 'red', 'blue'",
        5: "note: it is no JSON: Input data was truncated",
    }


@dataclass
class BadName:
    x: int = field(metadata={"alias": "the-x"})


@dataclass
class WrongDefault:
    color: Color = "red"  # type: ignore[assignment]


def test_what_avro_has_no_name_for_is_refused() -> None:
    with pytest.raises(GraphError, match="Avro has no field named 'the-x'"):
        Avro(BadName, framing="none")
    with pytest.raises(OptionError, match=r"the default of a field is wrong: .*a str is no Color"):
        _ = Avro(WrongDefault, framing="none").schema
