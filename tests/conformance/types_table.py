"""The types that a record's fields, states and keys can have: one table, with an example of each.

It is the program of test_types.py, in the same process and by value in a fresh one, and docs/types.md is made
of it by `python scripts/write_types_table.py`. An example is a value, and how JSON and Avro have it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic

from onceflow import Scale

T = TypeVar("T")
LONG: Any = "long"
STRING: Any = "string"
DECIMAL_18 = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


UserId = NewType("UserId", int)


@dataclass(frozen=True)
class Point:
    x: int
    y: int


class City(NamedTuple):
    name: str
    zip: str = "?"


@dataclass(frozen=True)
class Box(Generic[T]):
    item: T


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


@dataclass(frozen=True)
class Renamed:
    user_id: int = field(metadata={"alias": "userId"})
    color: Color = Color.RED


@dataclass(frozen=True)
class Placed:
    kind: Literal["placed"]
    amount: int


@dataclass(frozen=True)
class Cancelled:
    kind: Literal["cancelled"]
    reason: Color


class Get(msgspec.Struct, tag="get", frozen=True):
    key: str


class Put(msgspec.Struct, tag="put", frozen=True):
    key: str
    value: int


@attrs.frozen
class Reading:
    celsius: float = attrs.field(validator=attrs.validators.ge(-273.15))
    sensor: str = attrs.field(default="s", metadata={"alias": "sensorId"})


class Account(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    user_id: int = pydantic.Field(alias="userId", gt=0)
    balance: Annotated[Decimal, pydantic.Field(max_digits=10, decimal_places=2)] = Decimal("0.00")

    @pydantic.field_validator("balance")
    @classmethod
    def is_covered(cls, balance: Decimal) -> Decimal:
        if balance < 0:
            raise ValueError("overdrawn")
        return balance


class Event(msgspec.Struct, frozen=True, rename="camel"):
    event_type: str
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Example:
    """A value, and the JSON text of it that is written. `read`: other text that is the same value."""

    value: Any
    json: str
    read: tuple[str, ...] = ()


@dataclass(frozen=True)
class TypeRow:
    """A row of the table. `said` is the type as a user writes it; `avro` the type of the field, where a
    record in it is called `Row_x`; `can_be_key`: whether key_by takes it."""

    said: str
    python: Any
    arrow: str
    avro: Any
    examples: tuple[Example, ...]
    can_be_key: bool = True
    bad_json: tuple[str, ...] = ()
    json_said: str = ""
    state_type: Any = None
    """What a state is declared with, if it is not the type of the field."""


def record(**fields: Any) -> dict[str, Any]:
    """The Avro record of a struct column."""
    return {"type": "record", "name": "Row_x", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def nullable(avro: Any) -> dict[str, Any]:
    return {"type": ["null", avro], "default": None}


def row(said: str, python: Any, arrow: str, avro: Any, *examples: Example, **more: Any) -> TypeRow:
    return TypeRow(said, python, arrow, avro, examples, **more)


UUID_1 = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
NOON = dt.datetime(2026, 7, 1, 12, 30, 0, 5000, tzinfo=ZoneInfo("UTC"))  # as Arrow gives it
ROWS = (
    row("str", str, "string", STRING, Example("é", '"é"'), bad_json=("1",)),
    row("int", int, "int64", LONG, Example(-(2**63), "-9223372036854775808"), bad_json=("1.0",)),
    row("float", float, "double", "double", Example(1.5, "1.5"), bad_json=('"1"',)),
    row("bool", bool, "bool", "boolean", Example(True, "true"), bad_json=("1",)),
    row("bytes", bytes, "binary", "bytes", Example(b"\0\xff", '"AP8="'), json_said="text in base64"),
    row(
        "datetime",
        dt.datetime,
        "timestamp[ms, tz=UTC]",
        {"type": "long", "logicalType": "timestamp-millis"},
        Example(NOON, '"2026-07-01T12:30:00.005000Z"', ('"2026-07-01T14:30:00.005+02:00"',)),
        bad_json=('"2026-07-01T12:30:00"',),
    ),
    row(
        "date",
        dt.date,
        "date32[day]",
        {"type": "int", "logicalType": "date"},
        Example(dt.date(2026, 7, 1), '"2026-07-01"'),
    ),
    row(
        "time",
        dt.time,
        "time64[us]",
        {"type": "long", "logicalType": "time-micros"},
        Example(dt.time(23, 59, 59, 999999), '"23:59:59.999999"'),
        Example(dt.time(1, 2), '"01:02:00"'),
        bad_json=('"01:02:00Z"', '"25:00:00"'),
    ),
    row(
        "timedelta",
        dt.timedelta,
        "duration[us]",
        LONG,
        Example(dt.timedelta(days=1, microseconds=1), '"P1DT0.000001S"', ('"PT86400.000001S"',)),
        Example(dt.timedelta(seconds=-1), '"-PT1S"'),
        bad_json=("1", '"10 s"'),
    ),
    row(
        "Decimal",
        Decimal,
        "decimal128(38, 18)",
        DECIMAL_18,
        Example(Decimal("1.5"), "1.5", ('"1.5"', "1.50")),
        Example(Decimal("-100"), "-100"),
        bad_json=("1e-19", '"NaN"', "1e30"),
    ),
    row(
        "Annotated[Decimal, Scale(2)]",
        Annotated[Decimal, Scale(2)],
        "decimal128(38, 2)",
        DECIMAL_18 | {"scale": 2},
        Example(Decimal("1.50"), "1.50", ("1.5",)),
        bad_json=("1.505",),
    ),
    row("UUID", UUID, "string", {"type": "string", "logicalType": "uuid"},
        Example(UUID_1, f'"{UUID_1}"', (f'"{str(UUID_1).upper()}"', f'"{UUID_1.hex}"')),
        bad_json=('"6ba7"',)),
    row("Enum of str", Color, "string", STRING, Example(Color.RED, '"red"'), bad_json=('"blue"',)),
    row("Enum of int", Size, "int64", LONG, Example(Size.LARGE, "2"), bad_json=("3", '"LARGE"')),
    row('Literal["a", "b"]', Literal["a", "b"], "string", STRING, Example("a", '"a"'), bad_json=('"c"',)),
    row("Literal[1, 2]", Literal[1, 2], "int64", LONG, Example(2, "2"), bad_json=("3",)),
    row('NewType("UserId", int)', UserId, "int64", LONG, Example(7, "7"), bad_json=('"7"',)),
    row("X | None", Color | None, "string", nullable(STRING), Example(Color.RED, '"red"'),
        Example(None, "null"), state_type=Color, json_said="the same, or `null`"),
    row("list[X], Sequence[X]", Sequence[Color], "list<item: string not null>",
        {"type": "array", "items": "string"}, Example([Color.RED, Color.RED], '["red","red"]'),
        can_be_key=False, bad_json=('["red",null]',)),
    row("tuple[X, ...]", tuple[dt.date, ...], "list<item: date32[day] not null>",
        {"type": "array", "items": {"type": "int", "logicalType": "date"}},
        Example((dt.date(2026, 7, 1),), '["2026-07-01"]'), can_be_key=False),
    row("tuple[X, Y]", tuple[int, Color], "struct<f0: int64 not null, f1: string not null>",
        record(f0="long", f1="string"), Example((1, Color.GREEN), '[1,"green"]'),
        bad_json=("[1]", '[1,"blue"]')),
    row("set[X]", set[int], "list<item: int64 not null>", {"type": "array", "items": "long"},
        Example({3, -1, 2}, "[-1,2,3]", ("[3,2,-1,3]",)), can_be_key=False,
        json_said="an array, in order of the values"),
    row("frozenset[X]", frozenset[Color], "list<item: string not null>",
        {"type": "array", "items": "string"},
        Example(frozenset(Color), '["green","red"]', ('["red","green","red"]',)), can_be_key=False,
        json_said="an array, in order of the values"),
    row("dict[str, X], Mapping[str, X]", Mapping[str, dt.timedelta], "map<string, duration[us]>",
        {"type": "map", "values": "long"}, Example({"a": dt.timedelta(seconds=1)}, '{"a":"PT1S"}'),
        can_be_key=False),
    row("dict[int, X]", dict[int, Color], "map<int64, string>",
        {"type": "array", "items": record(key="long", value="string")},
        Example({2: Color.RED, 1: Color.GREEN}, '{"2":"red","1":"green"}'), can_be_key=False,
        bad_json=('{"x":"red"}',), json_said="an object, its keys as text"),
    row("Any", Any, "string", nullable(STRING),
        Example({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}'),
        Example(None, "null"), Example("text", '"text"'), can_be_key=False, json_said="any value"),
    row("a dataclass", Point, "struct<x: int64 not null, y: int64 not null>", record(x="long", y="long"),
        Example(Point(1, 2), '{"x":1,"y":2}')),
    row("a NamedTuple", City, "struct<name: string not null, zip: string not null>",
        record(name="string", zip="string"), Example(City("a"), '{"name":"a","zip":"?"}', ('{"name":"a"}',))),
    row("a generic dataclass: Box[Color]", Box[Color], "struct<item: string not null>", record(item="string"),
        Example(Box(Color.RED), '{"item":"red"}')),
    row("a TypedDict", Movie, "struct<title: string not null, year: int64>",
        record(title="string") | {"fields": [{"name": "title", "type": "string"},
                                             {"name": "year"} | nullable("long")]},
        Example({"title": "M", "year": 1931}, '{"title":"M","year":1931}'),
        Example({"title": "M"}, '{"title":"M","year":null}', ('{"title":"M"}',))),
    row("an attrs class", Reading, "struct<celsius: double not null, sensor: string not null>",
        record(celsius="double", sensorId="string"),
        Example(Reading(1.5, "a"), '{"celsius":1.5,"sensorId":"a"}'),
        Example(Reading(1.5), '{"celsius":1.5,"sensorId":"s"}', ('{"celsius":1.5}',))),
    row("a pydantic model", Account, "struct<user_id: int64 not null, balance: decimal128(10, 2) not null>",
        record(userId="long", balance=DECIMAL_18 | {"precision": 10, "scale": 2}),
        Example(Account(userId=1), '{"userId":1,"balance":0.00}', ('{"userId":1}',)),
        bad_json=('{"user_id":1}', '{"userId":1,"balance":123456789}')),
    row("a msgspec Struct", Event,
        "struct<event_type: string not null, tags: list<item: string not null> not null>",
        record(eventType="string", tags={"type": "array", "items": "string"}),
        Example(Event("e", frozenset({"b", "a"})), '{"eventType":"e","tags":["a","b"]}'),
        Example(Event("e"), '{"eventType":"e","tags":[]}', ('{"eventType":"e"}',)), can_be_key=False),
    row("a field with an alias", Renamed, "struct<user_id: int64 not null, color: string not null>",
        record(userId="long", color="string"),
        Example(Renamed(1, Color.GREEN), '{"userId":1,"color":"green"}'),
        Example(Renamed(1), '{"userId":1,"color":"red"}', ('{"userId":1}',)), bad_json=('{"user_id":1}',)),
    row(
        "a union of record types, told by a Literal",
        Placed | Cancelled,
        "struct<kind: string not null, placed: struct<kind: string not null, amount: int64 not null>, "
        "cancelled: struct<kind: string not null, reason: string not null>>",
        {
            "type": "record",
            "name": "Row_x",
            "fields": [
                {"name": "kind", "type": "string"},
                {"name": "placed"}
                | nullable(record(kind="string", amount="long") | {"name": "Row_x_placed"}),
                {"name": "cancelled"}
                | nullable(record(kind="string", reason="string") | {"name": "Row_x_cancelled"}),
            ],
        },
        Example(Placed("placed", 3), '{"kind":"placed","amount":3}', ('{"amount":3,"kind":"placed"}',)),
        Example(Cancelled("cancelled", Color.RED), '{"kind":"cancelled","reason":"red"}'),
        bad_json=('{"kind":"lost"}', '{"amount":3}', '{"kind":"placed","reason":"red"}'),
    ),
    row(
        "a union of msgspec Structs, told by their tags",
        Get | Put,
        "struct<type: string not null, get: struct<key: string not null>, "
        "put: struct<key: string not null, value: int64 not null>>",
        {
            "type": "record",
            "name": "Row_x",
            "fields": [
                {"name": "type", "type": "string"},
                {"name": "get"} | nullable(record(key="string") | {"name": "Row_x_get"}),
                {"name": "put"} | nullable(record(key="string", value="long") | {"name": "Row_x_put"}),
            ],
        },
        Example(Put("k", 2), '{"type":"put","key":"k","value":2}'),
        Example(Get("k"), '{"type":"get","key":"k"}'),
    ),
)  # fmt: skip


def record_type(python: Any) -> Any:
    """A record with a field of this type, `x`."""
    return dataclasses.make_dataclass("Row", [("x", python)], frozen=True, namespace={"__module__": __name__})


def avro_field(of: TypeRow) -> dict[str, Any]:
    """The field `x` in the Avro schema of such a record."""
    said = of.avro if isinstance(of.avro, dict) and "default" in of.avro else {"type": of.avro}
    return {"name": "x", **said}


# --- The table of the documents -------------------------------------------------------------------


def written_table() -> str:
    """The table of docs/types.md."""
    lines = ["| type | column | JSON | Avro |", "| --- | --- | --- | --- |"]
    for each in ROWS:
        json_text = each.json_said or f"`{each.examples[0].json}`"
        cells = [_code(each.said), f"`{each.arrow}`", json_text, _avro_text(avro_field(each)["type"])]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _code(said: str) -> str:
    """What a user writes, as code; what is said of a type, as it is."""
    return said if said.startswith(("a ", "an ", "Enum ")) else f"`{said}`"


def _avro_text(avro: Any) -> str:
    if isinstance(avro, str):
        return avro
    if isinstance(avro, list):
        return f"null or {_avro_text(avro[1])}"
    if avro["type"] == "array":
        return f"array of {_avro_text(avro['items'])}"
    if avro["type"] == "map":
        return f"map of {_avro_text(avro['values'])}"
    if avro["type"] == "record":
        return "record of " + ", ".join(f"{f['name']}: {_avro_text(f['type'])}" for f in avro["fields"])
    logical = avro["logicalType"]
    digits = f"({avro['precision']}, {avro['scale']})" if logical == "decimal" else ""
    return f"{avro['type']} ({logical}{digits})"
