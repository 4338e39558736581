"""Avro: schema resolution, defaults, tombstones, headers, and what is refused, each with its sentence."""

from __future__ import annotations

import datetime as dt
import io
import json
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest

from onceflow.connectors.formats import Avro, EncodeError, Json, TopicFormat, for_topic
from onceflow.runtime.errors import GraphError, OptionError


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    note: str | None = None
    tags: list[str] = field(default_factory=lambda: ["new"])


class Reading(NamedTuple):
    sensor: str
    celsius: float


def record(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": avro} for name, avro in types.items()]
    return {"type": "record", "name": "R", "fields": fields}


def value(schema: Any, cells: dict[str, Any], schema_id: int | None = 7) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), cells)
    return (b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")) + out.getvalue()


def read(of: Any, schema: Any, *rows: dict[str, Any], **options: Any) -> Any:
    return Avro(of, registry={7: schema}, **options).decoder().decode([value(schema, row) for row in rows])


def column(arrow: pa.DataType, nullable: bool = False) -> pa.Schema:
    return pa.schema([pa.field("x", arrow, nullable)])


# --- Schema resolution ----------------------------------------------------------------------------


def test_a_writers_extra_fields_are_skipped_and_missing_ones_are_the_dataclass_defaults() -> None:
    schema = record(extra={"type": "map", "values": ["int", "string"]}, amount="int", user="string")
    decoded = read(Purchase, schema, {"user": "a", "amount": 1, "extra": {"k": "v", "n": 1}})
    assert decoded.batch.to_pylist() == [{"user": "a", "amount": 1, "note": None, "tags": ["new"]}]


def test_a_missing_field_without_default_makes_every_value_of_that_schema_bad() -> None:
    decoded = read(Purchase, record(user="string"), {"user": "a"}, {"user": "b"})
    assert [bad.row for bad in decoded.bad] == [0, 1]
    assert (
        decoded.bad[0].reason
        == "schema 7 can't be read: it has no field 'amount', and there is no default for it"
    )


def test_the_reader_schemas_defaults_and_aliases_count() -> None:
    reader = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "aliases": ["number"], "type": "long"},
            {"name": "code", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "\u00ff\u0001"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
             "default": "\u0001\u0000"},
            {"name": "on", "type": {"type": "int", "logicalType": "date"}, "default": 1},
            {"name": "xs", "type": {"type": "array", "items": "int"}, "default": [1]},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }  # fmt: skip
    decoded = read(reader, record(number="int"), {"number": 5})
    assert decoded.batch.to_pylist() == [
        {
            "id": 5,
            "code": b"\xff\x01",
            "price": Decimal("2.56"),
            "on": dt.date(1970, 1, 2),
            "xs": [1],
            "note": None,
        }
    ]


def test_a_nullable_column_of_an_arrow_schema_may_be_missing() -> None:
    wanted = pa.schema([pa.field("x", pa.int64()), pa.field("y", pa.string())])
    assert read(wanted, record(x="int"), {"x": 1}).batch.to_pylist() == [{"x": 1, "y": None}]


@pytest.mark.parametrize(
    ("avro", "cell", "arrow", "expected"),
    [
        ("int", 5, pa.int64(), 5),
        ("int", -5, pa.float32(), -5.0),
        ("long", 1 << 40, pa.float64(), float(1 << 40)),
        ("float", 0.5, pa.float64(), 0.5),
        ("string", "é", pa.binary(), "é".encode()),
        ("bytes", "é".encode(), pa.string(), "é"),
        ("bytes", b"x", pa.large_string(), "x"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(), b"ab"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(2), b"ab"),
        (["null", "int"], 5, pa.int64(), 5),
        (["int", "string"], 5, pa.int64(), 5),
        ("long", 1_500, pa.timestamp("ms", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, dt.UTC)),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            -1,
            pa.timestamp("ms"),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            7,
            pa.timestamp("us"),
            dt.datetime(1970, 1, 1, 0, 0, 0, 7_000),
        ),
        ({"type": "int", "logicalType": "time-millis"}, 1, pa.time32("ms"), dt.time(0, 0, 0, 1_000)),
        ({"type": "string", "logicalType": "uuid"}, "u", pa.string(), "u"),
    ],
)
def test_values_widen(avro: Any, cell: Any, arrow: pa.DataType, expected: Any) -> None:
    plain = json.loads(json.dumps(record(x=avro)).replace("logicalType", "was"))
    decoded = (
        Avro(column(arrow), registry={7: record(x=avro)}).decoder().decode([value(plain, {"x": cell})] * 2)
    )
    assert not decoded.bad
    assert decoded.batch.to_pylist() == [{"x": expected}] * 2


@pytest.mark.parametrize(
    ("avro", "arrow"),
    [
        ("long", pa.int32()),
        ("double", pa.float32()),
        ("double", pa.int64()),
        ("string", pa.int64()),
        ("boolean", pa.int64()),
        ({"type": "int", "logicalType": "date"}, pa.timestamp("ms")),
        ({"type": "long", "logicalType": "time-micros"}, pa.timestamp("ms")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, pa.decimal128(4, 2)),
        ("bytes", pa.decimal128(4, 2)),
        ({"type": "array", "items": "long"}, pa.list_(pa.string())),
    ],
)
def test_nothing_narrows(avro: Any, arrow: pa.DataType) -> None:
    decoded = Avro(column(arrow), registry={7: record(x=avro)}).decoder().decode([b"\0\0\0\0\x07\0"])
    assert len(decoded.bad) == 1
    assert decoded.bad[0].reason.startswith("schema 7 can't be read: x")


def test_a_value_of_another_branch_or_null_is_bad_alone() -> None:
    schema = record(x=["null", "int", "string"])
    decoded = read(column(pa.int64()), schema, {"x": 1}, {"x": None}, {"x": "s"}, {"x": 2})
    assert decoded.batch.to_pylist() == [{"x": 1}, {"x": 2}]
    assert [bad.reason for bad in decoded.bad] == [
        "x is null, but is declared without None",
        "x is string in its schema, which can't be read as int64",
    ]


@pytest.mark.parametrize("ms", [-62_135_596_800_001, 253_402_300_800_000, 1 << 62])
def test_a_time_that_python_does_not_know_is_bad(ms: int) -> None:
    schema = record(x={"type": "long", "logicalType": "timestamp-millis"})
    raw = value(record(x="long"), {"x": ms})
    decoded = Avro(schema, registry={7: schema}).decoder().decode([raw])
    assert str(ms) in decoded.bad[0].reason


def test_values_of_several_schemas_keep_their_order() -> None:
    old, new = (
        record(user="string", amount="int"),
        record(amount="long", user="string", note=["null", "string"]),
    )
    values = [
        value(old, {"user": "a", "amount": 1}, 1),
        value(new, {"user": "b", "amount": 2, "note": "n"}, 2),
        b"junk!!",
        None,
        value(old, {"user": "c", "amount": 3}, 1),
        value(old, {"user": "d", "amount": 3}, 9),
    ]
    decoder = Avro(Purchase, registry={1: old, 2: new}, on_null="skip").decoder(frozenset({"user", "note"}))
    decoded = decoder.decode(values)
    assert decoded.batch.to_pylist() == [
        {"user": "a", "note": None}, {"user": "b", "note": "n"}, {"user": "c", "note": None}
    ]  # fmt: skip
    assert decoded.rows is not None
    assert decoded.rows.tolist() == [0, 1, 4]
    assert [bad.row for bad in decoded.bad] == [2, 5]
    assert "0x6a" in decoded.bad[0].reason
    assert decoded.bad[1].reason == "there is no schema 9; there are 1, 2"


# --- Tombstones, types, options -------------------------------------------------------------------


def test_tombstones_are_what_on_null_says() -> None:
    nullable = column(pa.int64(), nullable=True)
    schema = record(x="long")
    values = [None, value(schema, {"x": 1})]
    told = {
        on_null: Avro(nullable, registry={7: schema}, on_null=on_null).decoder().decode(values)
        for on_null in ("error", "skip", "nulls")
    }
    assert [bad.row for bad in told["error"].bad] == [0]
    assert told["skip"].batch.to_pylist() == [{"x": 1}]
    assert not told["skip"].bad
    assert told["nulls"].batch.to_pylist() == [{"x": None}, {"x": 1}]
    with pytest.raises(OptionError, match="'user' is not"):
        Avro(Purchase, registry={7: schema}, on_null="nulls")


def test_the_columns_of_each_kind_of_type() -> None:
    registry = {7: record(x="int")}
    assert Avro(Purchase, registry=registry).schema == Json(Purchase).schema
    assert Avro(Purchase, registry=registry).record_type is Purchase
    assert Avro(Reading, registry=registry).record_type is Reading
    text = Avro(json.dumps(record(x="int")), registry=registry)
    assert text.schema == Avro(record(x="int"), registry=registry).schema == column(pa.int32())
    assert text.record_type is None
    assert Avro(registry=registry).schema is None
    again = pickle.loads(pickle.dumps(text))
    assert again == text
    assert again.decoder().schema == text.schema


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Avro(Purchase), "registry="),
        (lambda: Avro(Purchase, registry={}), "registry="),
        (lambda: Avro(Purchase, framing="none", registry={1: "int"}), "no place for a schema id"),
        (lambda: Avro(Purchase, framing="plain", registry={1: "int"}), 'write "confluent" or "none"'),
        (lambda: Avro(int, framing="none"), "give a dataclass"),
        (lambda: Avro("{", framing="none"), "no Avro schema"),
        (lambda: Avro(record(x="text"), framing="none"), "text"),
        (lambda: Avro(["int"], framing="none"), "give a dataclass"),
        (lambda: Avro('"int"', framing="none"), "must be a record, not int"),
        (lambda: Avro(record(x=["int", "string"]), framing="none"), "'x' is a union of int, string"),
        (
            lambda: Avro(
                record(x={"type": "bytes", "logicalType": "decimal", "precision": 40}), framing="none"
            ),
            "38 digits",
        ),
        (
            lambda: Avro(
                {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
                framing="none",
            ),
            "contains itself",
        ),
        (lambda: Avro(column(pa.duration("s")), registry={1: record(x="int")}), "'x' as duration"),
        (lambda: Avro(column(pa.uint64()), registry={1: record(x="int")}), "'x' as uint64"),
        (lambda: Avro(Purchase, registry={-1: record(x="int")}), "from 0 to"),
        (lambda: Avro(Purchase, registry={"urll": "http://x"}), 'no "url"'),
        (lambda: Avro(Purchase, registry={"url": "http://x", "basic.auth": "y"}), "basic.auth"),
        (lambda: Avro(Purchase, registry="localhost:8081"), "localhost:8081"),
        (lambda: Avro(Purchase, registry={1: record(x="int")}, on_null="null"), "on_null"),
        (lambda: Avro(Purchase, registry={1: record(x="int")}, registry_timeout="soon"), "registry_timeout"),
        (lambda: Avro(registry={1: record(x="int")}).decoder(), "can only encode"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(make: Any, said: str) -> None:
    with pytest.raises((OptionError, GraphError)) as caught:
        make()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("missing", "options", "install"),
    [
        ("fastavro", 'framing="none"', "onceflow[avro]"),
        (
            "confluent_kafka.schema_registry",
            'registry="http://localhost:1"',
            "confluent-kafka[schemaregistry]",
        ),
    ],
)
def test_packages_that_are_not_installed_are_named_with_what_to_do(
    missing: str, options: str, install: str
) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import pyarrow as pa\n"
        "from onceflow.connectors.formats import Avro, Json\n"
        f"try: Avro(pa.schema([('x', pa.int64())]), {options})\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    assert run.stdout.startswith("OptionError")
    assert f"pip install '{install}'" in run.stdout


def test_a_password_is_not_shown() -> None:
    config = {"url": "http://localhost:1", "basic.auth.user.info": "me:hush"}
    assert "hush" not in repr(Avro(Purchase, registry=config))


# --- Writing --------------------------------------------------------------------------------------


def test_rows_are_written_with_the_id_of_their_schema() -> None:
    schema = {
        "type": "record",
        "name": "Total",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "n", "type": ["null", "long"], "default": None},
        ],
    }
    rows = pa.RecordBatch.from_pylist(
        [{"user": "a", "n": 1}, {"user": "b", "n": None}],
        pa.schema([pa.field("user", pa.string(), False), pa.field("n", pa.int64())]),
    )
    written = Avro(name="Total", registry={3: record(x="int"), 300: schema}).encoder(rows.schema).encode(rows)
    assert written.to_pylist() == [value(schema, row, 300) for row in rows.to_pylist()]


def test_a_given_schema_says_what_is_written() -> None:
    schema = record(
        kind={"type": "enum", "name": "E", "symbols": ["A", "B"]},
        at={"type": "long", "logicalType": "timestamp-millis"},
        n="int",
        code={"type": "fixed", "name": "F", "size": 2},
    )
    schema["fields"].append({"name": "more", "type": ["null", "string"], "default": None})
    rows = pa.RecordBatch.from_arrays(
        [pa.array([5]), pa.array(["B"]), pa.array([2_000_000], pa.timestamp("us", "UTC")), pa.array([b"ab"])],
        names=["n", "kind", "at", "code"],
    )
    written = Avro(schema, framing="none").encoder(rows.schema).encode(rows)
    cells = {"kind": "B", "at": 2_000, "n": 5, "code": b"ab", "more": None}
    assert written.to_pylist() == [value(schema, cells, None)]


@pytest.mark.parametrize(
    ("avro", "cells", "said"),
    [
        ("int", pa.array([1, 1 << 31]), "column 'x', row 1 of a batch: is 2147483648"),
        ("string", pa.array(["a", None]), "column 'x', row 1 of a batch: is null"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["A", "C"]), "row 1 of a batch: is 'C'"),
        (
            {"type": "fixed", "name": "F", "size": 2},
            pa.array([b"ab", b"abc"]),
            "row 1 of a batch: has 3 bytes",
        ),
        (
            {"type": "array", "items": "int"},
            pa.array([[1], [2, 1 << 40]]),
            "row 1 of a batch: item 1 is 1099511627776",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.array([1000, 1], pa.timestamp("us", "UTC")),
            "row 1",
        ),
        (
            ["null", {"type": "array", "items": "string"}],
            pa.array([None, ["a"], ["b", None]]),
            "row 2 of a batch: item 1 is null",
        ),
        (
            {"type": "map", "values": "int"},
            pa.array([[], [("k", 1 << 40)]], pa.map_(pa.string(), pa.int64())),
            "row 1",
        ),
        (record(y="int"), pa.array([{"y": 1}, {"y": None}]), "row 1 of a batch: x.y is null"),
    ],
)
def test_a_row_that_can_not_be_written_is_named(avro: Any, cells: pa.Array, said: str) -> None:
    rows = pa.RecordBatch.from_arrays([cells], names=["x"])
    encoder = Avro({**record(x=avro), "name": "Outer"}, framing="none").encoder(rows.schema)
    with pytest.raises(EncodeError) as caught:
        encoder.encode(rows)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("format", "schema", "said"),
    [
        (Avro(framing="none"), pa.schema([("a b", pa.int64())]), "no field named 'a b'"),
        (Avro(framing="none"), pa.schema([("x", pa.int64()), ("x", pa.int64())]), "two columns"),
        (Avro(framing="none"), column(pa.timestamp("ns")), "cast it to timestamp[us]"),
        (Avro(framing="none"), column(pa.list_(pa.uint64())), "'x[]', which is uint64"),
        (Avro(framing="none"), pa.schema([]), "no columns"),
        (Avro(framing="none", name="my-name"), column(pa.int64()), "my-name"),
        (Avro(record(x="long"), framing="none"), pa.schema([("y", pa.int64())]), "has no field y"),
        (Avro(record(x="long", y="int"), framing="none"), column(pa.int64()), "has the field 'y'"),
        (
            Avro(record(x="string"), framing="none"),
            column(pa.int64()),
            "'x' is int64, which can't be written",
        ),
        (Avro(record(x="float"), framing="none"), column(pa.float64()), "'x' is double"),
    ],
)
def test_columns_that_can_not_be_written_are_refused_when_the_graph_is_built(
    format: Avro, schema: pa.Schema, said: str
) -> None:
    with pytest.raises(GraphError) as caught:
        format.encoder(schema)
    assert said in str(caught.value)


def test_a_schema_that_the_mapping_does_not_have_is_named() -> None:
    encoder = Avro(registry={1: record(x="int")}).encoder(column(pa.string()))
    with pytest.raises(GraphError, match="does not have the schema of the rows"):
        encoder.encode(pa.RecordBatch.from_pylist([{"x": "a"}], column(pa.string())))


def test_the_subject_is_the_topics_unless_it_is_said() -> None:
    assert isinstance(Avro(framing="none"), TopicFormat)
    named = for_topic(Avro(registry="http://localhost:1"), "totals", "value")
    assert isinstance(named, Avro)
    assert named.subject == "totals-value"
    said = for_topic(Avro(registry="http://localhost:1", subject="mine"), "totals", "key")
    assert isinstance(said, Avro)
    assert said.subject == "mine"
    assert for_topic(Json(), "totals", "value") == Json()
