"""How the types of a union are told apart, and what is refused because nothing tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.value_types import UnionOf


@dataclass(frozen=True)
class A:
    version: Literal["1"]
    kind: Literal["a"]


@dataclass
class B:
    version: Literal["1"]
    kind: Literal["b"]


@dataclass
class Untagged:
    x: int


@dataclass
class Aliased:
    kind: Literal["c"] = field(metadata={"alias": "type"})


@dataclass
class OfItself:
    kind: Literal["kind"]


class Cat(pydantic.BaseModel):
    species: Literal["animal"]
    pet: Literal["cat"]


class Dog(pydantic.BaseModel):
    pet: Literal["dog"]
    species: Literal["beast"]


class Get(msgspec.Struct, tag=True):
    key: str


class Put(msgspec.Struct, tag=True):
    key: str


class Numbered(msgspec.Struct, tag=1):
    key: str


def union(python: Any) -> UnionOf:
    kind = describe_type(python, "Row.x").kind
    assert isinstance(kind, UnionOf)
    return kind


def test_the_first_field_whose_literals_differ_is_the_tag() -> None:
    found = union(A | B)
    assert (found.tag, [tag for tag, _ in found.variants], found.is_field) == ("kind", ["a", "b"], True)
    assert not describe_type(A | B, "x").nullable
    assert describe_type(A | B | None, "x").nullable


def test_pydantic_is_believed() -> None:
    assert union(Cat | Dog).tag == "species"
    assert union(Annotated[Cat | Dog, pydantic.Field(discriminator="pet")]).tag == "pet"


def test_structs_have_tags_of_their_own() -> None:
    found = union(Get | Put)
    assert (found.tag, [tag for tag, _ in found.variants], found.is_field) == ("type", ["Get", "Put"], False)


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        (A | Untagged, "Row.x is a union of A and Untagged, which nothing tells apart: give each a field"),
        (A | Aliased, "Row.x is a union of A and Aliased, which nothing tells apart"),
        (Get | A, "Row.x is a union of Get and A, which nothing tells apart"),
        (Get | Numbered, "Row.x is a union of Get and Numbered, which nothing tells apart"),
        (A | OfItself, "Row.x is a union in which 'kind' is a tag and the tag's field: rename one"),
        (int | str, r"Row.x is an int \| str, which has no Arrow type: there are unions of record types"),
        (A | int, r"Row.x is an A \| int, which has no Arrow type"),
    ],
)
def test_what_nothing_tells_apart_is_refused(python: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        describe_type(python, "Row.x")
