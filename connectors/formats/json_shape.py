"""The shape of a JSON value: everything in it but its scalars, as other values of the topic have it too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

TEXT, NUMBER, WORD = range(3)
"""What a scalar is; a word: true, false or null."""
NO_COLUMN = -1

_TOKEN = re.compile(
    rb'(?P<name>"[^"]*"(?=[ \t\r\n]*:))|(?P<text>"[^"]*")'
    rb"|(?P<word>true|false|null)|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<open>[{\[])|(?P<close>[}\]])|[:, \t\r\n]"
)
_KINDS = {"text": TEXT, "word": WORD, "number": NUMBER}


@dataclass(frozen=True, slots=True)
class Scalar:
    """Something that may differ from value to value."""

    kind: int
    column: int
    """Whose it is; NO_COLUMN: nobody's."""
    content: bytes
    """What it is in the value of which the shape was taken, without quotes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A value is of this shape if it is the first text, a scalar, the next text and so on to its end."""

    texts: tuple[bytes, ...]
    """One more than scalars; a text scalar's quotes belong to these."""
    scalars: tuple[Scalar, ...]


def shape_of(value: bytes, columns: Mapping[bytes, int]) -> Shape | None:
    """The shape of a value that JsonDecoder takes; None if it has an escape, or two fields for a column.

    `columns`: the wanted fields of the outermost object, by name. With other scalars in their places, each
    well formed and of the same kind, JsonDecoder takes the value just as well: names and nesting are in the
    texts, and what a column's scalar means does not hang on the others.
    """
    if b"\\" in value:
        return None
    texts: list[bytes] = []
    scalars: list[Scalar] = []
    found: set[int] = set()
    begin = depth = 0
    column = NO_COLUMN
    for token in _TOKEN.finditer(value):
        kind = token.lastgroup
        if kind == "name" and depth == 1:
            column = columns.get(token[0][1:-1], NO_COLUMN)
            if column in found:
                return None
            if column != NO_COLUMN:
                found.add(column)
        elif kind in _KINDS:
            quote = 1 if kind == "text" else 0
            end = token.end() - quote
            texts.append(value[begin : token.start() + quote])
            content = value[token.start() + quote : end]
            scalars.append(Scalar(_KINDS[kind], column, content))
            begin = end
        depth += (kind == "open") - (kind == "close")
    return Shape((*texts, value[begin:]), tuple(scalars))
