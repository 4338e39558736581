"""Which fields break which rule: what is said beside a registry's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceflow.connectors.formats.protobuf.message_type import message_type
from onceflow.connectors.formats.registry.compatibility import breaches, meaning_of
from tests.protobuf_messages import message_class


def avro(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


def json_schema(required: list[str] | None = None, **properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties, "required": required or []})


def protobuf(fields: str) -> str:
    of = message_class("R", ("r.proto", f'syntax = "proto3"; message R {{ {fields} }}'))
    return message_type(of, None).schema_text()


X = {"name": "x", "type": "long"}
Y = {"name": "y", "type": "string"}
MAYBE = ["null", "long"]
PLACE = {"type": "record", "name": "Place", "fields": [X]}
WIDE = {"type": "record", "name": "Place", "fields": [X, Y]}


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"),
    [
        (avro(X), avro(X), [], []),
        (avro(X), avro(X, Y), ["the field 'y' is new and has no default"], []),
        (avro(X), avro(X, {**Y, "default": ""}), [], []),
        (avro(X, Y), avro(X), [], ["the field 'y' is gone, and has no default in the old schema"]),
        (avro({**X, "type": "int"}), avro(X), [], ["the field 'x' was int and is long"]),
        (avro({**X, "type": MAYBE}), avro(X), ["the field 'x' was null or long and is long"], []),
        (avro(X), avro({**X, "type": MAYBE}), [], ["the field 'x' was long and is null or long"]),
        (
            avro({"name": "p", "type": ["null", {"type": "array", "items": PLACE}]}),
            avro({"name": "p", "type": ["null", {"type": "array", "items": WIDE}]}),
            ["the field 'p.y' is new and has no default"],
            [],
        ),
    ],
)  # fmt: skip
def test_fields_of_avro(old: str, new: str, backward: list[str], forward: list[str]) -> None:
    assert breaches("AVRO", "BACKWARD", old, new) == backward
    assert breaches("AVRO", "FORWARD_TRANSITIVE", old, new) == forward
    assert breaches("AVRO", "FULL", old, new) == [*backward, *forward]
    assert breaches("AVRO", "NONE", old, new) == []


INTEGER, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("old", "new", "backward"),
    [
        (json_schema(x=INTEGER), json_schema(x=INTEGER, y=TEXT), []),
        (json_schema(x=INTEGER), json_schema(["y"], y=TEXT), ["the field 'y' is new and is required"]),
        (json_schema(x=INTEGER), json_schema(["x"], x=INTEGER), ["the field 'x' is required and was not"]),
        (json_schema(x=INTEGER), json_schema(x=TEXT), ["the field 'x' was integer and is string"]),
        (json_schema(x=INTEGER), json_schema(x={"type": "number"}), []),
        (
            json_schema(x={"type": "object", "properties": {"a": INTEGER}}),
            json_schema(x={"type": "object", "properties": {"a": TEXT}}),
            ["the field 'x.a' was integer and is string"],
        ),
        ("true", json_schema(x=TEXT), []),
    ],
)
def test_fields_of_json_schema(old: str, new: str, backward: list[str]) -> None:
    assert breaches("JSON", "BACKWARD", old, new) == backward


@pytest.mark.parametrize(
    ("old", "new", "backward"),
    [
        ("int32 x = 1;", "int64 x = 1; string y = 2;", []),
        ("int32 x = 1;", "string x = 1;", ["the field 'R.x = 1' was int32 and is string"]),
        ("R x = 1;", "string x = 1;", ["the field 'R.x = 1' was R and is string"]),
    ],
)
def test_fields_of_protobuf(old: str, new: str, backward: list[str]) -> None:
    assert breaches("PROTOBUF", "BACKWARD", protobuf(old), protobuf(new)) == backward


def test_a_schema_that_is_not_known_here_explains_nothing() -> None:
    assert breaches("PROTOBUF", "BACKWARD", 'syntax = "proto3";', protobuf("int32 x = 1;")) == []
    assert breaches("AVRO", "BACKWARD", "long", avro(X)) == []
    assert meaning_of("SOMETHING") == ""
    assert "must read" in meaning_of("FULL_TRANSITIVE")
