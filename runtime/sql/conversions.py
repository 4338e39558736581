"""CAST and TRY_CAST: which types there are, and what becomes what. A value that has none in the other type
ends the job, or is null with TRY_CAST."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.checks import FIRST, MADE, step
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import (
    DECIMAL_DIGITS,
    Typed,
    converted,
    is_moment,
    is_null,
    is_text,
    type_name,
)

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars

_TYPES: Mapping[str, pl.DataType] = {
    "BOOLEAN": pl.Boolean(),
    "TINYINT": pl.Int8(),
    "SMALLINT": pl.Int16(),
    "INT": pl.Int32(),
    "BIGINT": pl.Int64(),
    "FLOAT": pl.Float32(),
    "DOUBLE": pl.Float64(),
    "CHAR": pl.String(),
    "VARCHAR": pl.String(),
    "TEXT": pl.String(),
    "BYTES": pl.Binary(),
    "VARBINARY": pl.Binary(),
    "DATE": pl.Date(),
}
_MOMENTS: Mapping[str, str | None] = {"TIMESTAMP": None, "TIMESTAMPNTZ": None, "TIMESTAMPLTZ": "UTC"}
_UNITS = {0: "ms", 3: "ms", 6: "us", 9: "ns"}
_TIME_FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_TIME_SHOWN = {"ms": "%Y-%m-%d %H:%M:%S%.3f", "us": "%Y-%m-%d %H:%M:%S%.6f", "ns": "%Y-%m-%d %H:%M:%S%.9f"}


def named_type(node: exp.Expr, cast: exp.Expr) -> pl.DataType:
    """The type that the text names. Raises GraphError for one that there is not."""
    name = str(node.args.get("kind") or node.this.value).upper()
    sizes = [int(str(each.this.this)) for each in node.expressions if isinstance(each, exp.DataTypeParam)]
    if name in _MOMENTS and len(sizes) <= 1 and (sizes or [6])[0] in _UNITS:
        unit = _UNITS[(sizes or [6])[0]]
        return pl.Datetime(unit, _MOMENTS[name])  # type: ignore[arg-type]
    if name == "DECIMAL":
        precision, scale = (*(sizes or [DECIMAL_DIGITS]), 0)[:2]
        if 1 <= precision <= DECIMAL_DIGITS and 0 <= scale <= precision:
            return pl.Decimal(precision, scale)
    if name in _TYPES and not sizes:
        return _TYPES[name]
    if name in ("CHAR", "VARCHAR", "VARBINARY") and sizes:
        raise refusal(cast, f"{shown(node)} would cut values off: use STRING, and LEFT(x, n) to cut")
    raise refusal(
        cast,
        f"there is no type {shown(node)}: use BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, "
        "DECIMAL(p, s), STRING, BYTES, DATE, TIMESTAMP(3) or TIMESTAMP_LTZ(3)",
    )


def _cast(scalars: Scalars, node: exp.Expr) -> Typed:
    value, target = scalars.typed(node.this), named_type(node.args["to"], node)
    if value.type == target:
        return value
    if is_null(value.type):
        return Typed(value.expr.cast(target), target)
    tried = _tried(value, target)
    if tried is None:
        raise refusal(
            node,
            f"{shown(node)}: {type_name(value.type)} has no "
            f"{type_name(target)}{_instead(value.type, target)}",
        )
    if isinstance(node, exp.TryCast):
        return Typed(tried, target)
    rule = _tried(Typed(FIRST, value.type), target)
    assert rule is not None
    sentence = (
        f"{scalars.where_is(node)}: a value has no {type_name(target)}: use TRY_CAST, which makes it "
        "null, or leave "
        "such rows out with WHERE"
    )
    checks = [(MADE.is_null() & FIRST.is_not_null(), sentence)]
    return Typed(step([scalars.protected(value.expr)], rule, target, checks), target)


def _instead(source: pl.DataType, target: pl.DataType) -> str:
    if is_moment(target) and source.is_integer():
        return ": use TO_TIMESTAMP_LTZ(ms, 3)"
    if is_moment(source) and target.is_numeric():
        return ": use EXTRACT(EPOCH FROM ...)"
    if isinstance(target, pl.Boolean):
        return ": compare it, as in x <> 0"
    return ": CAST it to another type before, or compute it with .with_columns(...)"


def _tried(value: Typed, target: pl.DataType) -> pl.Expr | None:
    """The value in the type, null where it has none; None: there is no such conversion."""
    source, expr = value.type, value.expr
    if is_text(target):
        return _as_text(expr, source)
    if is_text(source):
        return _of_text(expr, target)
    if isinstance(target, pl.Binary):
        return None
    if source.is_numeric() and target.is_numeric():
        return expr.cast(target, strict=False)  # digits behind the point go, as in Flink
    if isinstance(source, pl.Boolean) and target.is_numeric():
        return expr.cast(pl.Int8).cast(target)
    if isinstance(source, pl.Date) and is_moment(target):
        return converted(value, target)
    if isinstance(source, pl.Datetime) and isinstance(target, pl.Date):
        return expr.dt.date()
    if isinstance(source, pl.Datetime) and isinstance(target, pl.Datetime):
        wall = (
            expr.dt.replace_time_zone(None) if source.time_zone == "UTC" else expr.dt.convert_time_zone("UTC")
        )
        wall = wall.dt.replace_time_zone(None).cast(pl.Datetime(target.time_unit), strict=False)
        return wall if target.time_zone is None else wall.dt.replace_time_zone(target.time_zone)
    return None


def _as_text(expr: pl.Expr, source: pl.DataType) -> pl.Expr | None:
    if isinstance(source, pl.Datetime):
        zone_free = (
            expr if source.time_zone is None else expr.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        )
        return zone_free.dt.strftime(_TIME_SHOWN[source.time_unit])
    if isinstance(source, pl.Boolean | pl.Date) or source.is_numeric():
        return expr.cast(pl.String)
    return None


def _of_text(expr: pl.Expr, target: pl.DataType) -> pl.Expr | None:
    if isinstance(target, pl.Binary):
        return expr.cast(pl.Binary)
    text = expr.str.strip_chars(" ")
    if isinstance(target, pl.Boolean):
        lower = text.str.to_lowercase()
        return pl.when(lower == "true").then(True).when(lower == "false").then(False)
    if isinstance(target, pl.Datetime):
        return moment_of_text(text, target)
    if isinstance(target, pl.Date):
        return text.str.to_date("%Y-%m-%d", strict=False)
    return text.cast(target, strict=False)


def moment_of_text(text: pl.Expr, target: pl.Datetime) -> pl.Expr:
    """`2026-01-31 12:00:00.5`, with T in the middle, without seconds, or a day alone; in UTC."""
    tries = [
        text.str.to_datetime(each, time_unit=target.time_unit, strict=False) for each in _TIME_FORMATS[:3]
    ]
    tries.append(text.str.to_date(_TIME_FORMATS[3], strict=False).cast(pl.Datetime(target.time_unit)))
    made = pl.coalesce(tries)
    return made if target.time_zone is None else made.dt.replace_time_zone(target.time_zone)


RULES: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]] = {exp.Cast: _cast, exp.TryCast: _cast}
