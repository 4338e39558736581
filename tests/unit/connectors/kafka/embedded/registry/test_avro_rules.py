"""Which Avro schema reads what another wrote: each rule both ways, and against fastavro's own reader."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.connectors.formats.registry.schemas import ImportedSchema, RegisteredSchema
from onceflow.connectors.kafka.embedded.registry.avro_rules import AvroSchema, parsed, why_unread
from onceflow.runtime.errors import OptionError


def schema(of: Any) -> AvroSchema:
    return parsed(RegisteredSchema("AVRO", json.dumps(of)))


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    made = [{"name": n, "type": t, **(rest[0] if rest else {})} for n, t, *rest in fields]
    return {"type": "record", "name": name, "fields": made, **more}


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
MORE = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE", "GREEN"]}
TREE = record(("leaf", "int"), ("more", {"type": "array", "items": "R"}))

READ = [
    ("int", "int"),
    ("long", "int"),
    ("double", "float"),
    ("bytes", "string"),
    (["null", "long"], "int"),
    (["null", "long"], ["null", "int"]),
    ("string", ["string"]),
    (record(("x", "int")), record(("x", "int"), ("y", "int"))),
    (record(("x", "int"), ("y", "int", {"default": 0})), record(("x", "int"))),
    (record(("x", "int", {"aliases": ["old"]})), record(("old", "int"))),
    (record(("x", "int"), name="New", aliases=["Old"]), record(("x", "int"), name="Old")),
    (record(("x", "int"), name="a.R"), record(("x", "int"), name="b.R")),
    (record(("x", {"type": "map", "values": "long"})), record(("x", {"type": "map", "values": "int"}))),
    (MORE, COLOUR),
    ({**COLOUR, "default": "RED"}, MORE),
    ({"type": "long", "logicalType": "timestamp-millis"}, "long"),
    (TREE, TREE),
]
UNREAD = [
    ("int", "long", "the value is written as long and read as int"),
    ("string", ["null", "string"], "the value is written as null and read as string"),
    (["null", "int"], "string", "the value is written as string, which none of null or int reads"),
    (record(("y", "int")), record(("x", "int")), "the field 'y' is not written, and has no default"),
    (record(("x", "int")), record(("x", "string")), "the field 'x' is written as string and read as int"),
    (record(("x", "int"), name="A"), record(("x", "int"), name="B"), "is the record B and read as A"),
    (COLOUR, MORE, "may be written as GREEN, which a reader does not have"),
    (
        record(("x", {"type": "array", "items": "int"})),
        record(("x", {"type": "array", "items": "string"})),
        "the field 'x[]' is written as string",
    ),
    (
        record(("x", {"type": "map", "values": record(("y", "int"), name="I")})),
        record(("x", {"type": "map", "values": record(("z", "int"), name="I")})),
        "the field 'x{}.y' is not written",
    ),
    (
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "fixed", "name": "F", "size": 3},
        "is written as F of 3 bytes and read as F of 2 bytes",
    ),
    (
        {**TREE, "fields": [*TREE["fields"], {"name": "depth", "type": "int"}]},
        TREE,
        "the field 'depth' is not written",
    ),
]


@pytest.mark.parametrize(("reader", "writer"), READ)
def test_what_is_read(reader: Any, writer: Any) -> None:
    assert why_unread(schema(reader), schema(writer)) == []


@pytest.mark.parametrize(("reader", "writer", "why"), UNREAD)
def test_what_is_not_read_is_told_with_its_field(reader: Any, writer: Any, why: str) -> None:
    found = why_unread(schema(reader), schema(writer))
    assert why in "; ".join(found), found


def test_a_type_of_another_subject_is_followed() -> None:
    def with_place(kind: str) -> AvroSchema:
        place = json.dumps(record(("x", kind), name="geo.Place"))
        text = json.dumps(record(("to", "geo.Place")))
        return parsed(RegisteredSchema("AVRO", text, (ImportedSchema("geo.Place", place),)))

    assert why_unread(with_place("long"), with_place("int")) == []
    assert why_unread(with_place("int"), with_place("long")) == [
        "the field 'to.x' is written as long and read as int"
    ]


@pytest.mark.parametrize("text", ["", "{", '{"type":"recrd"}', '{"type":"enum","name":"E"}', '"Nobody"'])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="this is no Avro schema"):
        parsed(RegisteredSchema("AVRO", text))


SIMPLE = ("int", "long", "float", "double", "string", "bytes", "boolean")
VALUES: dict[str, Any] = {
    "int": 3,
    "long": 2**40,
    "float": 0.5,
    "double": 0.25,
    "string": "a",
    "bytes": b"b",
    "boolean": True,
    "null": None,
}
TYPES = st.one_of(
    st.sampled_from(SIMPLE),
    st.lists(st.sampled_from(("null", *SIMPLE)), min_size=1, max_size=3, unique=True),
    st.sampled_from(SIMPLE).map(lambda t: {"type": "array", "items": t}),
    st.sampled_from(SIMPLE).map(lambda t: {"type": "map", "values": t}),
)
FIELDS = st.dictionaries(st.sampled_from("abc"), TYPES, max_size=3)


def values_of(kind: Any) -> list[Any]:
    """At least one value of each branch."""
    if isinstance(kind, list):
        return [value for branch in kind for value in values_of(branch)]
    if isinstance(kind, dict):
        inner = VALUES[kind.get("items", kind.get("values"))]
        return [[inner] if kind["type"] == "array" else {"k": inner}]
    return [VALUES[kind]]


@given(FIELDS, FIELDS)
@example({"a": ["null", "int"]}, {"a": "int"})  # a branch that the reader lacks
@example({"a": "long"}, {"a": "int"})
@example({}, {"a": "int"})
def test_what_is_said_to_be_read_fastavro_reads_and_nothing_else(
    written: dict[str, Any], read: dict[str, Any]
) -> None:
    writer, reader = record(*written.items()), record(*read.items())
    found = why_unread(schema(reader), schema(writer))
    failed = False
    for field in written or [""]:
        for value in values_of(written[field]) if field else [None]:
            row = {name: values_of(kind)[0] for name, kind in written.items()}
            if field:
                row[field] = value
            raw = io.BytesIO()
            fastavro.schemaless_writer(raw, writer, row)
            raw.seek(0)
            try:
                fastavro.schemaless_reader(raw, writer, reader)
            except Exception:  # the library raises what comes along
                failed = True
    assert bool(found) == failed, (found, writer, reader)
