"""The type of which the user's code gets a key, and what can't be one."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NewType
from uuid import UUID

import pyarrow as pa
import pytest

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.keys import check_key, declared_keys, key_types
from onceflow.runtime.graph.steps import Rows
from onceflow.runtime.types.record_types import arrow_schema

UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int


@dataclass(frozen=True)
class Row:
    user: UserId
    color: Color
    point: Point
    tags: tuple[str, ...]
    any: Any
    pair: tuple[int, Any]


SCHEMA = arrow_schema(Row)


def test_keys_are_of_the_types_of_their_fields() -> None:
    found = key_types(["user", "color", "point"], Rows(SCHEMA, Row, False))
    assert {name: of.said for name, of in found.items()} == {"color": "Color", "point": "Point"}
    assert key_types(["color"], Rows(SCHEMA, None, False)) == {}


@pytest.mark.parametrize(
    ("declared", "names", "said"),
    [
        (Color, ["color"], {"color": "Color"}),
        (UserId, ["user"], {}),
        (UUID, ["color"], {"color": "UUID"}),
        (None, ["color"], {}),
        (Any, ["color"], {}),
        (tuple[UserId, Color], ["user", "color"], {"color": "Color"}),
        (tuple[Any, ...], ["user", "color"], {}),
        (tuple, ["user", "color"], {}),
    ],
)
def test_keys_are_of_the_declared_types(declared: Any, names: list[str], said: dict[str, str]) -> None:
    found = declared_keys(declared, names, SCHEMA, "p")
    assert {name: of.said for name, of in found.items()} == said


def test_a_declared_type_that_the_column_has_not_is_refused() -> None:
    with pytest.raises(GraphError, match="'p': its key is declared Color, but key column 'user' is int"):
        declared_keys(Color, ["user"], SCHEMA, "p")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tags", "key column 'tags' is list<.*>, which can't be a key"),
        ("any", "key column 'any' is Any, kept as JSON, which can't be a key: one value has many texts"),
        ("pair", "key column 'pair' is Any"),
    ],
)
def test_what_can_not_be_a_key_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        check_key(SCHEMA.field(name), "p")


def test_what_can_be_a_key() -> None:
    for name in ("user", "color", "point"):
        check_key(SCHEMA.field(name), "p")
    check_key(pa.field("d", pa.duration("us")), "p")
