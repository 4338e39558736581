"""Functions of texts. Lengths and places are counted in characters, from 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.checks import FIRST, SECOND, part, step
from onceflow.runtime.sql.chosen_values import arguments
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import Typed, is_null, is_text, type_name

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars

_TEXT = pl.String()
_THIRD = part(2)


def _text(scalars: Scalars, node: exp.Expr, argument: exp.Expr) -> pl.Expr:
    value = scalars.typed(argument)
    if is_null(value.type):
        return value.expr.cast(pl.String)
    if not is_text(value.type):
        raise refusal(
            node,
            f"{shown(node)}: a text is wanted, but {shown(argument)} is {type_name(value.type)}: CAST "
            "it AS STRING",
        )
    return value.expr


def _whole(scalars: Scalars, node: exp.Expr, argument: exp.Expr) -> pl.Expr:
    value = scalars.typed(argument)
    if is_null(value.type):
        return value.expr.cast(pl.Int64)
    if not value.type.is_integer():
        raise refusal(
            node,
            f"{shown(node)}: an integer is wanted, but {shown(argument)} is {type_name(value.type)}: CAST it",
        )
    return value.expr.cast(pl.Int64)


def _of_text(
    apply: Callable[[pl.Expr], pl.Expr], dtype: pl.DataType = _TEXT
) -> Callable[[Scalars, exp.Expr], Typed]:
    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        return Typed(apply(_text(scalars, node, arguments(node, 1, 1)[0])), dtype)

    return rule


def _of_texts(
    apply: Callable[..., pl.Expr], n: int, dtype: pl.DataType = _TEXT
) -> Callable[[Scalars, exp.Expr], Typed]:
    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        return Typed(apply(*(_text(scalars, node, each) for each in arguments(node, n, n))), dtype)

    return rule


def _joined(scalars: Scalars, node: exp.Expr) -> Typed:
    """`a || b`: null if one of them is."""
    sides = [_text(scalars, node, side) for side in (node.this, node.expression)]
    return Typed(pl.concat_str(sides), _TEXT)


def _concat(scalars: Scalars, node: exp.Expr) -> Typed:
    return Typed(pl.concat_str([_text(scalars, node, each) for each in arguments(node, 1)]), _TEXT)


def _concat_with(scalars: Scalars, node: exp.Expr) -> Typed:
    """CONCAT_WS leaves nulls out; a null between them makes all null."""
    first, *rest = arguments(node, 2)
    separator = scalars.typed(first).literal
    if not isinstance(separator, str):
        raise refusal(
            node, f"{shown(node)}: what is to stand between has to be a text in quotes: CONCAT_WS('-', a, b)"
        )
    parts = [_text(scalars, node, each) for each in rest]
    return Typed(pl.concat_str(parts, separator=separator, ignore_nulls=True), _TEXT)


def _trim(scalars: Scalars, node: exp.Expr) -> Typed:
    """TRIM([BOTH | LEADING | TRAILING] [letters FROM] text): spaces only, if no letters are given."""
    value = _text(scalars, node, node.this)
    letters = _text(scalars, node, node.expression) if node.expression is not None else pl.lit(" ")
    match str(node.args.get("position") or "BOTH").upper():
        case "LEADING":
            return Typed(value.str.strip_chars_start(letters), _TEXT)
        case "TRAILING":
            return Typed(value.str.strip_chars_end(letters), _TEXT)
        case _:
            return Typed(value.str.strip_chars(letters), _TEXT)


def _trimmed(apply: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Scalars, exp.Expr], Typed]:
    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        first, *letters = arguments(node, 1, 2)
        of = _text(scalars, node, letters[0]) if letters else pl.lit(" ")
        return Typed(apply(_text(scalars, node, first), of), _TEXT)

    return rule


def _substring(scalars: Scalars, node: exp.Expr) -> Typed:
    """SUBSTRING is that of the standard: places before the first one are empty."""
    start, length = node.args.get("start"), node.args.get("length")
    if start is None:
        raise refusal(node, f"{shown(node)}: where does it begin? SUBSTRING(text FROM 2 FOR 3)")
    value, begin = _text(scalars, node, node.this), _whole(scalars, node, start)
    none = pl.lit(0, dtype=pl.Int64)
    offset = pl.max_horizontal(SECOND - 1, none)
    has_all = FIRST.is_not_null() & SECOND.is_not_null()
    if length is None:
        return Typed(step([value, begin], pl.when(has_all).then(FIRST.str.slice(offset)), _TEXT), _TEXT)
    size = _not_negative(scalars, node, _whole(scalars, node, length))
    # What stands before the first place counts in the length.
    left = pl.max_horizontal(_THIRD + pl.min_horizontal(SECOND - 1, none), none)
    made = pl.when(has_all & _THIRD.is_not_null()).then(FIRST.str.slice(offset, left.cast(pl.UInt64)))
    return Typed(step([value, begin, size], made, _TEXT), _TEXT)


def _substr(scalars: Scalars, node: exp.Expr) -> Typed:
    text, start, *length = arguments(node, 2, 3)
    of = exp.Substring(this=text.copy(), start=start.copy(), length=length[0].copy() if length else None)
    return _substring(scalars, of)


def _not_negative(scalars: Scalars, node: exp.Expr, length: pl.Expr) -> pl.Expr:
    sentence = f"{scalars.where_is(node)}: a length below 0: use GREATEST(..., 0)"
    return step([scalars.protected(length)], FIRST, pl.Int64(), [(FIRST < 0, sentence)])


def _left(scalars: Scalars, node: exp.Expr) -> Typed:
    text, length = arguments(node, 2, 2)
    size = _not_negative(scalars, node, _whole(scalars, node, length))
    made = _text(scalars, node, text).str.head(size)
    return Typed(pl.when(size.is_not_null()).then(made), _TEXT)


def _right(scalars: Scalars, node: exp.Expr) -> Typed:
    text, length = arguments(node, 2, 2)
    size = _not_negative(scalars, node, _whole(scalars, node, length))
    value = _text(scalars, node, text)
    last = pl.when(SECOND == 0).then(pl.lit("")).otherwise(FIRST.str.tail(SECOND))
    rule = pl.when(FIRST.is_not_null() & SECOND.is_not_null()).then(last)
    return Typed(step([value, size], rule, _TEXT), _TEXT)


def _position(scalars: Scalars, node: exp.Expr) -> Typed:
    """POSITION(part IN text): the place of the first one, 0 if there is none."""
    return Typed(
        _place_of(_text(scalars, node, node.args["substr"]), _text(scalars, node, node.this)), pl.Int64()
    )


def _place_of(wanted: pl.Expr, text: pl.Expr) -> pl.Expr:
    before = SECOND.str.split(FIRST).list.first().str.len_chars().cast(pl.Int64)
    found = pl.when(SECOND.str.contains(FIRST, literal=True)).then(before + 1).otherwise(0)
    found = pl.when(FIRST == "").then(1).otherwise(found)
    rule = pl.when(FIRST.is_not_null() & SECOND.is_not_null()).then(found)
    return step([wanted, text], rule, pl.Int64())


def _split_index(scalars: Scalars, node: exp.Expr) -> Typed:
    """SPLIT_INDEX(text, separator, i): the part i, from 0; null if there are fewer."""
    text, separator, index = arguments(node, 3, 3)
    parts = _text(scalars, node, text).str.split(_text(scalars, node, separator))
    at = _whole(scalars, node, index)
    return Typed(pl.when(at >= 0).then(parts.list.get(at, null_on_oob=True)), _TEXT)


def _replace(scalars: Scalars, node: exp.Expr) -> Typed:
    """REPLACE(text, old, new). Nothing stands for the empty text, which is between all letters."""
    text, old, new = arguments(node, 3, 3)
    value, by, wanted = _text(scalars, node, text), _text(scalars, node, new), scalars.typed(old).literal
    if not isinstance(wanted, str):
        raise refusal(node, f"{shown(node)}: what is replaced has to be a text in quotes: REPLACE(x, '-', y)")
    if not wanted:
        return Typed(step([value, by], pl.when(SECOND.is_not_null()).then(FIRST), _TEXT), _TEXT)
    return Typed(value.str.replace_all(wanted, by, literal=True), _TEXT)


RULES: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]] = {
    exp.DPipe: _joined,
    exp.StrPosition: _position,
    exp.Substring: _substring,
    exp.Trim: _trim,
}
FUNCTIONS: Mapping[str, Callable[[Scalars, exp.Expr], Typed]] = {
    "BTRIM": _trimmed(lambda e, of: e.str.strip_chars(of)),
    "CHARACTER_LENGTH": _of_text(lambda e: e.str.len_chars().cast(pl.Int64), pl.Int64()),
    "CHAR_LENGTH": _of_text(lambda e: e.str.len_chars().cast(pl.Int64), pl.Int64()),
    "CONCAT": _concat,
    "CONCAT_WS": _concat_with,
    "ENDSWITH": _of_texts(lambda e, end: e.str.ends_with(end), 2, pl.Boolean()),
    "LEFT": _left,
    "LENGTH": _of_text(lambda e: e.str.len_chars().cast(pl.Int64), pl.Int64()),
    "LOWER": _of_text(lambda e: e.str.to_lowercase()),
    "LTRIM": _trimmed(lambda e, of: e.str.strip_chars_start(of)),
    "REPLACE": _replace,
    "REVERSE": _of_text(lambda e: e.str.reverse()),
    "RIGHT": _right,
    "RTRIM": _trimmed(lambda e, of: e.str.strip_chars_end(of)),
    "SPLIT_INDEX": _split_index,
    "STARTSWITH": _of_texts(lambda e, start: e.str.starts_with(start), 2, pl.Boolean()),
    "SUBSTR": _substr,
    "UPPER": _of_text(lambda e: e.str.to_uppercase()),
}
