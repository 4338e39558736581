"""The types of what is kept, as trees: from a manifest's text or from a file's Arrow type, the same tree.

A manifest describes types as text (`description.type_text`), since a checkpoint is judged before any of its
files is opened. The files have Arrow types. Whether what is kept can be read is decided on the tree alone, so
the judgement is the same in both places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from onceflow.runtime.state.description import NOT_NULL, type_text

_OPENING, _CLOSING = "<[(", ">])"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A type without others inside, by Arrow's text for it: `int64`, `timestamp[ms, tz=UTC]`."""

    text: str


@dataclass(frozen=True, slots=True)
class Member:
    """A type where it is used: a field of a struct, or the item of a list."""

    type: Tree
    nullable: bool


@dataclass(frozen=True, slots=True)
class Struct:
    """The fields by name; their order does not count."""

    fields: Mapping[str, Member]


@dataclass(frozen=True, slots=True)
class ListTree:
    """A list of any number of items."""

    item: Member


@dataclass(frozen=True, slots=True)
class MapTree:
    """A map. Whether a value may be null is not in the text, so a tree does not know it either."""

    key: Tree
    value: Tree


Tree: TypeAlias = Leaf | Struct | ListTree | MapTree


def tree_of(arrow: pa.DataType) -> Tree:
    """The tree of an Arrow type."""
    return tree_of_text(type_text(arrow))


def tree_of_text(text: str) -> Tree:
    """The tree of what `type_text` wrote."""
    if text.startswith("struct<") and text.endswith(">"):
        return Struct(dict(map(_field, _parts(text[len("struct<") : -1]))))
    if text.startswith("list<") and text.endswith(">"):
        return ListTree(_member(text[len("list<") : -1]))
    if text.startswith("map<") and text.endswith(">"):
        key, value = _parts(text[len("map<") : -1])
        return MapTree(tree_of_text(key), tree_of_text(value))
    return Leaf(text)


def _field(text: str) -> tuple[str, Member]:
    name, _, of = text.partition(": ")
    return name, _member(of)


def _member(text: str) -> Member:
    bare = text.removesuffix(NOT_NULL)
    return Member(tree_of_text(bare), bare == text)


def _parts(text: str) -> Iterator[str]:
    """The pieces between commas that are in no bracket."""
    depth = start = 0
    for place, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if not depth and text.startswith(", ", place):
            yield text[start:place]
            start = place + 2
    if text:
        yield text[start:]
