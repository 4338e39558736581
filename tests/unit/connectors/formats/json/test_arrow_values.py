"""Times of a stated zone, defaults, names outside, and values inside of values."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pytest

from onceflow import Scale
from onceflow.connectors.formats import Json
from onceflow.runtime.errors import OptionError
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.records_of_columns import RecordReader


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


@dataclass(frozen=True)
class At:
    at: dt.datetime
    all: list[dt.datetime] = field(default_factory=list)
    by: dict[str, dt.datetime | None] = field(default_factory=dict)
    pair: tuple[dt.datetime, Color] | None = None


BERLIN = Json(At, zone="Europe/Berlin")
UTC = ZoneInfo("UTC")


def read(format: Json, *values: str) -> tuple[list[Any], list[str]]:
    decoded = format.decoder().decode([value.encode() for value in values])
    return RecordReader(format.of).read(decoded.batch), [each.reason for each in decoded.bad]


def test_a_time_without_an_offset_is_of_the_stated_zone() -> None:
    value = (
        '{"at":"2026-07-01T12:00:00","all":["2026-01-01T12:00:00","2026-01-01T12:00:00Z"],'
        '"by":{"a":"2026-07-01T12:00:00","b":null},"pair":["2026-07-01T12:00:00","red"]}'
    )
    noon = dt.datetime(2026, 7, 1, 10, tzinfo=UTC)
    winter = [dt.datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (11, 12)]
    assert read(BERLIN, value) == ([At(noon, winter, {"a": noon, "b": None}, (noon, Color.RED))], [])
    assert read(Json(At), value)[1] == ["Expected `datetime` with a timezone component - at `$.at`"]


def test_a_time_that_comes_twice_or_never_is_bad() -> None:
    records, reasons = read(
        BERLIN,
        '{"at":"2026-10-25T02:30:00"}',
        '{"at":"2026-03-29T02:30:00"}',
        '{"at":"2026-10-25T02:30:00+02:00"}',
        '{"at":"2026-01-01T00:00:00","all":["2026-03-29T02:30:00"]}',
    )
    assert [record.at for record in records] == [dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]
    assert reasons == [
        "2026-10-25T02:30:00 comes twice in Europe/Berlin: it needs an offset - at `$.at`",
        "2026-03-29T02:30:00 is skipped by the clocks of Europe/Berlin - at `$.at`",
        "2026-03-29T02:30:00 is skipped by the clocks of Europe/Berlin - at `$.all`",
    ]


def test_the_zone_is_for_arrow_schemas_too() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))])
    schema = schema.append(pa.field("in", pa.struct([("at", pa.timestamp("ms", "UTC"))])))
    decoded = Json(schema, zone="America/New_York").decoder().decode(
        [b'{"at":"2026-07-01T12:00:00","local":"2026-07-01T12:00:00","in":{"at":"2026-07-01T12:00:00"}}']
    )  # fmt: skip
    (row,) = decoded.batch.to_pylist()
    assert row["at"] == row["in"]["at"] == dt.datetime(2026, 7, 1, 16, tzinfo=UTC)
    assert row["local"] == dt.datetime(2026, 7, 1, 12)


@pytest.mark.parametrize("zone", ["Europe/Berlni", "", "/etc/passwd", 1])
def test_a_zone_that_there_is_not_is_refused(zone: Any) -> None:
    with pytest.raises(OptionError, match=r'is not an IANA time zone: write one as in "Europe/Berlin"'):
        Json(At, zone=zone)


# --- Values inside of values ----------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    item: UUID
    price: Annotated[Decimal, Scale(2)] = Decimal("9.99")
    sizes: frozenset[Size] = frozenset({Size.SMALL})
    tags: list[str] = field(default_factory=lambda: ["none"], metadata={"alias": "labels"})


@dataclass(frozen=True)
class Order:
    kind: Literal["order"]
    lines: list[Line]
    best: Line | None = None
    by_color: dict[Color, tuple[Line, ...]] = field(default_factory=dict)
    seen: dict[dt.date, UUID] = field(default_factory=dict)


@dataclass(frozen=True)
class Cancel:
    kind: Literal["cancel"]
    of: dict[Size, Order | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Nested:
    event: Order | Cancel
    more: list[Order | Cancel | None] = field(default_factory=list)


ID = UUID(int=7)
LINE = Line(ID)
ORDER = Order("order", [LINE, Line(ID, Decimal("1.00"), frozenset(), [])], LINE, {Color.BLUE: (LINE,)})
NESTED = [
    Nested(ORDER),
    Nested(Cancel("cancel", {Size.SMALL: ORDER})),
    Nested(Order("order", [], seen={dt.date(2026, 1, 1): ID}), [None, Cancel("cancel"), ORDER]),
]


def test_deeply_nested_values_come_back() -> None:
    writer, format = RecordWriter.of(describe_record(Nested)), Json(Nested)
    batch = writer.write(NESTED)
    written = format.encoder(writer.schema).encode(batch)
    decoded = format.decoder().decode(written)
    assert not decoded.bad
    assert decoded.batch == batch
    assert RecordReader(Nested).read(decoded.batch) == NESTED
    lines = msgspec.json.decode(written[0].as_py())["event"]["lines"]
    assert list(lines[0]) == ["item", "price", "sizes", "labels"]


def test_defaults_inside_are_those_of_the_types() -> None:
    value = f'{{"event":{{"lines":[{{"item":"{ID.hex}"}}],"kind":"order"}}}}'
    assert read(Json(Nested), value) == ([Nested(Order("order", [LINE]))], [])


@dataclass
class WrongDefault:
    color: Color = "red"  # type: ignore[assignment]


def test_a_default_that_is_no_value_of_its_type_is_refused() -> None:
    with pytest.raises(OptionError, match="the default of 'color' is wrong: a str is no Color"):
        Json(WrongDefault)


# --- Names outside --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flat:
    user_id: str = field(metadata={"alias": "user-id"})
    amount: int = field(default=3, metadata={"alias": "the amount"})


@pytest.mark.parametrize("many", [2, 600])
def test_names_outside_are_read_and_written_on_every_way(many: int) -> None:
    values = [b'{"user-id":"u","the amount":1}', b'{"user-id":"u"}', b'{"user_id":"u"}'] * many
    decoded = Json(Flat).decoder().decode(values)
    assert RecordReader(Flat).read(decoded.batch) == [Flat("u", 1), Flat("u", 3)] * many
    assert [each.row for each in decoded.bad] == list(range(2, 3 * many, 3))
    written = Json().encoder(decoded.batch.schema).encode(decoded.batch).to_pylist()
    assert written == [b'{"user-id":"u","the amount":1}', b'{"user-id":"u","the amount":3}'] * many
    floats = decoded.batch.append_column("rate", pa.array([0.5] * 2 * many))
    assert Json().encoder(floats.schema).encode(floats)[0].as_py() == (
        b'{"user-id":"u","the amount":1,"rate":0.5}'
    )
