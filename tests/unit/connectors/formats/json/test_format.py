"""Json: what is a good value, what is a bad one and why, and what comes out when rows are written."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Decoded, EncodeError, Json
from onceflow.runtime.errors import GraphError, OptionError


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    amount: int
    price: float = 0.5
    note: str | None = None
    coupon: str | None = field(default=None)


@dataclass
class Strict:
    must_be_there: int | None


@dataclass
class Address:
    street: str
    number: int | None = None


@dataclass
class Customer:
    name: str
    home: Address
    tags: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    others: list[Address] = field(default_factory=lambda: [Address("default", 7)])
    picture: bytes = b"none"
    born: dt.date | None = None
    seen: dt.datetime | None = None


class Reading(NamedTuple):
    sensor: str
    celsius: float = 1.5


def decode(format: Json, *values: bytes | None) -> Decoded:
    return format.decoder().decode(values)


def rows(format: Json, *values: bytes | None) -> list[dict[str, Any]]:
    decoded = decode(format, *values)
    assert not decoded.bad
    return decoded.batch.to_pylist()


def reason(format: Json, value: bytes | None) -> str:
    """Why a value is bad; it stands between two good ones, which must not suffer."""
    good = b'{"user":"u","amount":1}'
    decoded = decode(format, good, value, good)
    assert decoded.batch.num_rows == 2
    assert decoded.rows is not None
    assert decoded.rows.tolist() == [0, 2]
    (bad,) = decoded.bad
    assert bad.row == 1
    return bad.reason


def test_columns_come_from_the_record_type_and_defaults_are_honoured() -> None:
    format = Json(Purchase)
    assert format.schema is not None
    assert format.schema.names == ["user", "amount", "price", "note", "coupon"]
    assert format.record_type is Purchase
    assert rows(format, b'{"amount":2,"user":"u","extra":[1,{"deep":null}]}') == [
        {"user": "u", "amount": 2, "price": 0.5, "note": None, "coupon": None}
    ]


def test_named_tuples_and_arrow_schemas_describe_records_too() -> None:
    assert rows(Json(Reading), b'{"sensor":"s"}') == [{"sensor": "s", "celsius": 1.5}]
    schema = pa.schema([pa.field("odd name", pa.int8(), nullable=False), pa.field("class", pa.string())])
    assert rows(Json(schema), b'{"odd name":-128}') == [{"odd name": -128, "class": None}]


def test_nested_records_lists_maps_bytes_and_times() -> None:
    value = (
        b'{"name":"n","home":{"street":"s"},"tags":["a","b"],"counts":{"k":1},"picture":"aGk=",'
        b'"born":"1999-12-31","seen":"2026-01-31T12:00:00.123456+02:00"}'
    )
    (row,) = rows(Json(Customer), value)
    assert row["home"] == {"street": "s", "number": None}
    assert row["tags"] == ["a", "b"]
    assert row["counts"] == [("k", 1)]
    assert row["others"] == [{"street": "default", "number": 7}]
    assert row["picture"] == b"hi"
    assert row["born"] == dt.date(1999, 12, 31)
    assert row["seen"] == dt.datetime(2026, 1, 31, 10, 0, 0, 123000, tzinfo=dt.UTC)


def test_an_optional_field_without_default_must_be_there_but_may_be_null() -> None:
    assert rows(Json(Strict), b'{"must_be_there":null}') == [{"must_be_there": None}]
    assert "missing required field `must_be_there`" in decode(Json(Strict), b"{}").bad[0].reason


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "blank"),
        (b" \t\n ", "blank"),
        (None, "tombstone"),
        (b"null", "Expected `object`, got `null`"),
        (b"[]", "Expected `object`, got `array`"),
        (b'"text"', "got `str`"),
        (b"1", "got `int`"),
        (b"{", "truncated"),
        (b'{"user":"u","amount":1}{"user":"v","amount":2}', "trailing characters"),
        (b'{"user":"u","amount":1}\n{"user":"v","amount":2}', "trailing characters"),
        (b'{"user":"u","amount":1,}', "trailing comma"),
        (b'{"user":"u"}', "missing required field `amount`"),
        (b'{"user":null,"amount":1}', "got `null` - at `$.user`"),
        (b'{"user":"u","amount":"1"}', "got `str` - at `$.amount`"),
        (b'{"user":"u","amount":1.0}', "got `float` - at `$.amount`"),
        (b'{"user":"u","amount":1e3}', "got `float` - at `$.amount`"),
        (b'{"user":"u","amount":true}', "got `bool` - at `$.amount`"),
        (b'{"user":"u","amount":NaN}', "malformed"),
        (b'{"user":"u","amount":1,"price":NaN}', "malformed"),
        (b'{"user":"u","amount":1,"price":Infinity}', "malformed"),
        (b'{"user":"u","amount":1,"price":1e400}', "out of range"),
        (b'{"user":"u","amount":1,"price":null}', "got `null` - at `$.price`"),
        (b'{"user":"u","amount":9223372036854775808}', "<= 9223372036854775807"),
        (b'{"user":"u","amount":-9223372036854775809}', ">= -9223372036854775808"),
        (b'{"user":"u","amount":' + b"9" * 5000 + b"}", "out of range"),
        (b'{"user":"\xff","amount":1}', "not UTF-8"),
        (b'{"user":"\xed\xa0\x80","amount":1}', "not UTF-8"),
        (b'{"user":"\\ud800","amount":1}', "surrogate"),
        (b'{"user":"\\udc00 low first","amount":1}', "surrogate"),
        (b'{"user":"a\x00b","amount":1}', "malformed"),
        (b'{"user":7,"user":"u","amount":1}', "got `int` - at `$.user`"),
        (b'\xef\xbb\xbf{"user":"u","amount":1}', "malformed"),
        (b'{"user":"u","amount":1,"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (b"[" * 200_000, "array"),
    ],
)
def test_a_bad_value_is_told_with_its_reason_and_spares_its_neighbours(value: bytes | None, why: str) -> None:
    assert why in reason(Json(Purchase), value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"user":"","amount":0}', ("", 0)),
        (b' {"user" : "u" , "amount" : -0 } \r\n', ("u", 0)),
        (b'{"user":"u","amount":1,"amount":2}', ("u", 2)),
        (b'{"user":"u","amount":9223372036854775807}', ("u", (1 << 63) - 1)),
        (b'{"user":"u","amount":-9223372036854775808}', ("u", -(1 << 63))),
        ('{"user":"é😀\\u0000\\ud83d\\ude00","amount":1}'.encode(), ("é😀\x00😀", 1)),
        (b'{"u\\u0073er":"u","amount":1}', ("u", 1)),
        (b'{"user":"' + b"x" * (1 << 20) + b'","amount":1}', ("x" * (1 << 20), 1)),
    ],
)
def test_odd_but_good_values_come_out_exactly(value: bytes, expected: tuple[str, int]) -> None:
    (row,) = rows(Json(Purchase), value)
    assert (row["user"], row["amount"]) == expected


def test_numbers_that_an_arrow_type_cannot_hold_are_bad() -> None:
    schema = pa.schema(
        [
            pa.field("small", pa.int16(), nullable=False),
            pa.field("large", pa.uint64(), nullable=False),
            pa.field("single", pa.float32(), nullable=False),
        ]
    )
    decoded = decode(
        Json(schema),
        b'{"small":32767,"large":18446744073709551615,"single":3.4e38}',
        b'{"small":32768,"large":0,"single":0}',
        b'{"small":0,"large":18446744073709551616,"single":0}',
        b'{"small":0,"large":-1,"single":0}',
        b'{"small":0,"large":0,"single":1e39}',
    )
    assert decoded.batch.num_rows == 1
    assert decoded.batch.column("large").to_pylist() == [(1 << 64) - 1]
    assert [bad.row for bad in decoded.bad] == [1, 2, 3, 4]


def test_a_time_without_an_offset_is_bad_where_the_column_has_a_time_zone() -> None:
    value = b'{"name":"n","home":{"street":"s"},"seen":"2026-01-31T12:00:00"}'
    assert "timezone" in decode(Json(Customer), value).bad[0].reason


def test_a_missing_value_is_an_error_or_skipped_or_a_row_of_nulls() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.list_(pa.string()))])
    assert decode(Json(schema), None).bad[0].row == 0
    skipped = decode(Json(schema, on_null="skip"), b'{"a":1}', None, b'{"a":2}')
    assert (skipped.batch.num_rows, list(skipped.bad)) == (2, [])
    assert rows(Json(schema, on_null="nulls"), None) == [{"a": None, "b": None}]
    with pytest.raises(OptionError, match="'user' is not"):
        Json(Purchase, on_null="nulls")


def test_only_the_columns_asked_for_are_decoded_and_checked() -> None:
    decoder = Json(Purchase).decoder(frozenset({"amount"}))
    decoded = decoder.decode([b'{"user":7,"amount":1}', b'{"amount":"x"}', b'{"amount":2'])
    assert decoder.schema.names == ["amount"]
    assert decoded.batch.to_pylist() == [{"amount": 1}]
    assert [bad.row for bad in decoded.bad] == [1, 2]


def test_without_any_column_rows_are_still_counted_and_checked() -> None:
    decoded = Json(Purchase).decoder(frozenset()).decode([b"{}", b"[]", b"{}"])
    assert decoded.batch.num_rows == 2
    assert [bad.row for bad in decoded.bad] == [1]


def test_json_without_a_type_cannot_decode() -> None:
    assert Json().schema is None
    with pytest.raises(OptionError, match=r"Json\(Purchase\)"):
        Json().decoder()


def test_types_without_a_json_form_are_refused_when_the_job_is_built() -> None:
    with pytest.raises(OptionError, match="time64\\[ns\\]"):
        Json(pa.schema([pa.field("t", pa.time64("ns"))]))
    with pytest.raises(OptionError, match="dataclass"):
        Json(int)
    with pytest.raises(GraphError, match=r"'d'.*duration"):
        Json().encoder(pa.schema([pa.field("d", pa.duration("ns"))]))
    with pytest.raises(GraphError, match=r"'m'.*keys of a map"):
        Json().encoder(pa.schema([pa.field("m", pa.map_(pa.int32(), pa.string()))]))
    with pytest.raises(GraphError, match="no columns"):
        Json().encoder(pa.schema([]))
    with pytest.raises(GraphError, match="same name"):
        Json().encoder(pa.schema([("a", pa.int8()), ("a", pa.int8())]))
    for name in ("", "a\0b"):
        with pytest.raises(GraphError, match="named"):
            Json().encoder(pa.schema([(name, pa.int8())]))
    with pytest.raises(OptionError, match="quotes"):
        Json(pa.schema([('a"b', pa.int8())]))


def encode(batch: pa.RecordBatch) -> list[bytes]:
    encoded = Json().encoder(batch.schema).encode(batch)
    assert encoded.type in (pa.binary(), pa.large_binary())
    return [value for value in encoded.to_pylist()]


def test_rows_are_written_compactly_in_the_order_of_the_schema() -> None:
    schema = pa.schema(
        [("user", pa.string()), ("window_end", pa.int64()), ("count", pa.int64()), ("total", pa.int64())]
    )
    batch = pa.RecordBatch.from_arrays([["u1"], [1700000010000], [3], [99]], schema=schema)
    assert encode(batch) == [b'{"user":"u1","window_end":1700000010000,"count":3,"total":99}']
    assert encode(batch.slice(1)) == []


def test_a_slice_of_a_batch_writes_its_own_rows_only() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3], "f": [0.5, float("nan"), 2.0]})
    assert encode(batch.slice(2)) == [b'{"a":3,"f":2.0}']


def test_what_is_written_can_be_read_again() -> None:
    value = (
        b'{"name":"n\\"\\\\","home":{"street":"s","number":3},"tags":["\\n"],"counts":{"k":-1},'
        b'"others":[],"picture":"AP8=","born":"0001-01-01","seen":"2026-01-31T10:00:00.123Z"}'
    )
    batch = decode(Json(Customer), value).batch
    (written,) = encode(batch)
    assert decode(Json(Customer), written).batch.equals(batch)
    assert json.loads(written)["picture"] == "AP8="


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "arrow",
    [
        pa.float64(),
        pa.list_(pa.float64()),
        pa.struct([("x", pa.float32())]),
        pa.map_(pa.string(), pa.float64()),
    ],
)
def test_numbers_that_json_lacks_are_refused_and_never_become_null(number: float, arrow: pa.DataType) -> None:
    shapes: dict[Any, Any] = {"list": [number], "struct": {"x": number}, "map": [("k", number)]}
    value = shapes.get(str(arrow).split("<")[0], number)
    batch = pa.RecordBatch.from_arrays([pa.array([None, value], arrow)], names=["ratio"])
    with pytest.raises(EncodeError, match="'ratio' holds"):
        encode(batch)
    assert encode(batch.slice(0, 1)) == [b'{"ratio":null}']


def test_times_durations_and_maps_by_number_or_day_come_back_by_an_arrow_schema() -> None:
    inner = pa.struct([pa.field("time", pa.time32("ms")), pa.field("took", pa.duration("us"))])
    schema = pa.schema([
        pa.field("time", pa.time64("us")), pa.field("took", pa.duration("us")), pa.field("inner", inner),
        pa.field("by_number", pa.map_(pa.int64(), pa.duration("us"))),
        pa.field("by_day", pa.map_(pa.date32(), pa.list_(pa.time64("us")))),
    ])  # fmt: skip
    took, time = dt.timedelta(microseconds=-1), dt.time(23, 59, 59, 5000)
    row = {
        "time": time, "took": took, "inner": {"time": time, "took": took},
        "by_number": [(-5, took)], "by_day": [(dt.date(2026, 7, 1), [time])],
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(schema.names)], schema)
    decoded = Json(schema).decoder().decode(Json().encoder(schema).encode(batch))
    assert not decoded.bad
    assert decoded.batch == batch
    bad = (
        Json(schema).decoder().decode([b'{"time":"24:00:00"}', b'{"took":5}', b'{"by_number":{"x":"PT1S"}}'])
    )
    assert [each.row for each in bad.bad] == [0, 1, 2]
