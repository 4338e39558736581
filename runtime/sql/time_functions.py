"""Functions of times: EXTRACT, FLOOR to a unit, TIMESTAMPADD, DATE_FORMAT. All times are in UTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.checks import FIRST, SECOND, step
from onceflow.runtime.sql.chosen_values import arguments
from onceflow.runtime.sql.conversions import moment_of_text
from onceflow.runtime.sql.literals import LONGEST_MS
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import Typed, is_moment, is_null, is_text, type_name

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars

_PARTS: Mapping[str, Callable[[pl.Expr], pl.Expr]] = {
    "YEAR": lambda e: e.dt.year(),
    "QUARTER": lambda e: e.dt.quarter(),
    "MONTH": lambda e: e.dt.month(),
    "WEEK": lambda e: e.dt.week(),
    "DAY": lambda e: e.dt.day(),
    "DAYOFMONTH": lambda e: e.dt.day(),
    "DOY": lambda e: e.dt.ordinal_day(),
    "DAYOFYEAR": lambda e: e.dt.ordinal_day(),
    "DOW": lambda e: e.dt.weekday() % 7 + 1,
    "DAYOFWEEK": lambda e: e.dt.weekday() % 7 + 1,
    "ISODOW": lambda e: e.dt.weekday(),
    "HOUR": lambda e: e.dt.hour(),
    "MINUTE": lambda e: e.dt.minute(),
    "SECOND": lambda e: e.dt.second(),
    "EPOCH": lambda e: e.dt.timestamp("ms").floordiv(1000),
}
_OF_DAYS = ("HOUR", "MINUTE", "SECOND", "EPOCH")
_LENGTHS = {
    "SECOND": "1s",
    "MINUTE": "1m",
    "HOUR": "1h",
    "DAY": "1d",
    "WEEK": "1w",
    "MONTH": "1mo",
    "QUARTER": "1q",
    "YEAR": "1y",
}
_IN_MS = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000, "WEEK": 604_800_000}
_MONTH_MS = 28 * 86_400_000
"""The shortest one, so that nothing is refused that fits."""
_LETTERS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%3f",
    "SSSSSS": "%6f",
}
_MS = pl.Datetime("ms", "UTC")


def _moment(scalars: Scalars, node: exp.Expr, argument: exp.Expr) -> Typed:
    value = scalars.typed(argument)
    if is_null(value.type):
        return Typed(value.expr.cast(_MS), _MS)
    if not is_moment(value.type):
        way = "TO_TIMESTAMP_LTZ(ms, 3)" if value.type.is_integer() else "CAST(... AS TIMESTAMP)"
        raise refusal(
            node,
            f"{shown(node)}: a time is wanted, but {shown(argument)} is {type_name(value.type)}: write {way}",
        )
    if isinstance(value.type, pl.Datetime) and value.type.time_zone not in (None, "UTC"):
        in_utc = value.expr.dt.convert_time_zone("UTC")
        return Typed(in_utc, pl.Datetime(value.type.time_unit, "UTC"))
    return value


def _unit(node: exp.Expr, said: exp.Expr, known: Mapping[str, object]) -> str:
    name = str(said.name).upper()
    if name not in known:
        raise refusal(
            node, f"{shown(node)}: there is no {name} of a time here: use one of {', '.join(known)}"
        )
    return name


def _extract(scalars: Scalars, node: exp.Expr) -> Typed:
    return _part(scalars, node, _unit(node, node.this, _PARTS), node.expression)


def _part(scalars: Scalars, node: exp.Expr, unit: str, argument: exp.Expr) -> Typed:
    value = scalars.typed(argument)
    if not isinstance(value.type, pl.Date) or unit in _OF_DAYS:
        value = _moment(scalars, node, argument)
    return Typed(_PARTS[unit](value.expr).cast(pl.Int64), pl.Int64())


def _part_function(unit: str) -> Callable[[Scalars, exp.Expr], Typed]:
    return lambda scalars, node: _part(scalars, node, unit, arguments(node, 1, 1)[0])


def rounded_time(scalars: Scalars, node: exp.Expr, up: bool) -> Typed:
    """FLOOR(ts TO HOUR), CEIL(ts TO HOUR). Weeks begin on Monday."""
    argument, said = node.expressions
    unit = _unit(node, said, _LENGTHS)
    value = _moment(scalars, node, argument)
    if not up:
        return Typed(value.expr.dt.truncate(_LENGTHS[unit]), value.type)
    floor = FIRST.dt.truncate(_LENGTHS[unit])
    rule = pl.when(floor == FIRST).then(FIRST).otherwise(floor.dt.offset_by(_LENGTHS[unit]))
    return Typed(step([value.expr], rule, value.type), value.type)


def _added(scalars: Scalars, node: exp.Expr) -> Typed:
    """TIMESTAMPADD(DAY, 3, ts). A month on from the 31st is the last day of a shorter month."""
    said, number, argument = arguments(node, 3, 3)
    unit = _unit(node, said, _LENGTHS)
    value, count = _moment(scalars, node, argument), scalars.typed(number)
    if not count.type.is_integer():
        raise refusal(node, f"{shown(node)}: how many is {type_name(count.type)}: give an integer")
    sentence = f"{scalars.where_is(node)}: so many are no time that fits: leave such rows out with WHERE"
    most = LONGEST_MS // _IN_MS.get(unit, _MONTH_MS)
    wanted = scalars.protected(count.expr).cast(pl.Int64)
    counted = step([wanted], FIRST, pl.Int64(), [((most < FIRST) | (-most > FIRST), sentence)])
    by = pl.concat_str([counted.cast(pl.String), pl.lit(_LENGTHS[unit][1:])])
    return Typed(value.expr.dt.offset_by(by), value.type)


def _difference(scalars: Scalars, node: exp.Expr) -> Typed:
    """TIMESTAMPDIFF(MINUTE, from, to): whole units, towards zero."""
    said, first, second = arguments(node, 3, 3)
    unit = _unit(node, said, _IN_MS)
    start, end = (_moment(scalars, node, each).expr.dt.timestamp("ms") for each in (first, second))
    length = SECOND - FIRST
    whole = length.abs() // _IN_MS[unit]
    rule = pl.when(length < 0).then(-whole).otherwise(whole)
    return Typed(step([start, end], rule, pl.Int64()), pl.Int64())


def _format(scalars: Scalars, node: exp.Expr) -> Typed:
    argument, pattern = arguments(node, 2, 2)
    said = scalars.typed(pattern).literal
    if not isinstance(said, str):
        raise refusal(node, f"{shown(node)}: the pattern has to be a text in quotes: 'yyyy-MM-dd HH:mm:ss'")
    value = _moment(scalars, node, argument)
    return Typed(value.expr.dt.strftime(_strftime(node, said)), pl.String())


def _strftime(node: exp.Expr, pattern: str) -> str:
    """Java's pattern in the letters of polars."""
    parts = []
    for place, part in enumerate(pattern.split("'")):
        if place % 2:  # in quotes; two quotes are one
            parts.append(part.replace("%", "%%") or "'")
            continue
        for letter, run in groupby(part):
            letters = "".join(run)
            if not (letter.isalpha() and letter.isascii()):
                parts.append(letters.replace("%", "%%"))
            elif letters in _LETTERS:
                parts.append(_LETTERS[letters])
            else:
                raise refusal(
                    node,
                    f"{pattern!r}: {letters!r} is not supported: use {', '.join(_LETTERS)}, others in quotes",
                )
    return "".join(parts)


def _of_number(scalars: Scalars, node: exp.Expr) -> Typed:
    """TO_TIMESTAMP_LTZ(n, 3) of ms, TO_TIMESTAMP_LTZ(n, 0) of s since 1970."""
    first, *rest = arguments(node, 1, 2)
    value = scalars.typed(first)
    digits = scalars.typed(rest[0]).literal if rest else 3
    if digits not in (0, 3) or not (value.type.is_integer() or is_null(value.type)):
        raise refusal(
            node, f"{shown(node)}: give an integer, and 3 for milliseconds or 0 for seconds since 1970"
        )
    number = scalars.protected(value.expr).cast(pl.Int64)
    if digits == 0:
        sentence = (
            f"{scalars.where_is(node)}: a number of seconds is no time that fits: are these milliseconds?"
        )
        number = step([number], FIRST * 1000, pl.Int64(), [(FIRST.abs() > 1 << 53, sentence)])
    return Typed(number.cast(_MS), _MS)


def _of_text(scalars: Scalars, node: exp.Expr) -> Typed:
    """TO_TIMESTAMP('2026-01-31 12:00:00'): null for a text that is no time, as in Flink."""
    value = scalars.typed(arguments(node, 1, 1)[0])
    if not is_text(value.type):
        raise refusal(
            node,
            f"{shown(node)}: TO_TIMESTAMP takes a text, not {type_name(value.type)}: see TO_TIMESTAMP_LTZ",
        )
    return Typed(moment_of_text(value.expr, pl.Datetime("ms")), pl.Datetime("ms"))


RULES: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]] = {exp.Extract: _extract}
FUNCTIONS: Mapping[str, Callable[[Scalars, exp.Expr], Typed]] = {
    "DATE_FORMAT": _format,
    "TIMESTAMPADD": _added,
    "TIMESTAMPDIFF": _difference,
    "TO_TIMESTAMP": _of_text,
    "TO_TIMESTAMP_LTZ": _of_number,
    **{unit: _part_function(unit) for unit in _PARTS if unit not in ("DOW", "DOY", "ISODOW", "EPOCH", "DAY")},
    "DAYOFMONTH": _part_function("DAY"),
}
