"""Polars expressions against a stream's columns: checked and typed when the graph is built."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.contracts import PausableSource, Source, WatermarkStrategy
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.steps import Input, Rows
from onceflow.runtime.nearest import nearest
from onceflow.runtime.operators.expressions import passed_on
from onceflow.runtime.types.column_forms import form_of, outside_name, renamed
from onceflow.runtime.types.plain_types import plain_type

# Rows in no order, with a null and a repetition: enough to tell whether one hangs on its neighbours.
_NUMBERS = [20, 0, None, 30, 30]
_SAMPLES: Mapping[type[pl.DataType], list[Any]] = {
    pl.String: ["20", "0", None, "30", "30"],
    pl.Binary: [b"b", b"", None, b"c", b"c"],
    pl.Boolean: [False, True, None, True, True],
    pl.Date: [n if n is None else dt.date(2026, 1, n + 1) for n in _NUMBERS],
    pl.Datetime: [n if n is None else dt.datetime(2026, 1, n + 1) for n in _NUMBERS],
}


NamedColumns = list[tuple[str, pl.Expr]]
"""Columns of the output, by name."""


class ColumnCheck:
    """Checks the expressions of one operator against the columns it gets."""

    def __init__(self, uid: str, schema: pa.Schema) -> None:
        self._where = f"operator {uid!r}"
        self._schema = schema

    def need(self, name: str, what: str = "column") -> pa.Field:
        """The column of this name. Raises GraphError naming the nearest."""
        if name not in self._schema.names:
            raise GraphError(
                f"{self._where}: there is no {what} {name!r}{nearest(name, self._schema.names)}; "
                f"there are {', '.join(self._schema.names)}"
            )
        return self._schema.field(name)

    def named(
        self, given: tuple[str | pl.Expr, ...], aliased: Mapping[str, Any]
    ) -> list[tuple[str, pl.Expr]]:
        """What select and with_columns are called with, as (output name, expression)."""
        expressions: list[tuple[str, pl.Expr]] = []
        for item in given:
            if isinstance(item, str):
                self.need(item)
                item = pl.col(item)
            if not isinstance(item, pl.Expr):
                raise GraphError(
                    f"{self._where}: {item!r} is neither a column's name nor a polars expression"
                )
            expressions += self._split(item)
        for name, value in aliased.items():
            expressions.append((name, value if isinstance(value, pl.Expr) else pl.lit(value)))
        names = [name for name, _ in expressions]
        for name in names:
            if names.count(name) > 1:
                raise GraphError(f"{self._where}: two columns are called {name!r}: give one an .alias(...)")
        return expressions

    def field(self, name: str, expression: pl.Expr) -> pa.Field:
        """The column that an expression makes. Raises GraphError if it makes none, or looks at other rows."""
        for root in expression.meta.root_names():
            self.need(root)
        if expression.meta.undo_aliases().meta.is_column():
            return renamed(self._schema.field(expression.meta.root_names()[0]), name)
        try:
            column = self._empty().select(expression).to_series()
        except pl.exceptions.PolarsError as error:
            raise GraphError(f"{self._where}: {expression} fails: {str(error).splitlines()[0]}") from error
        if column.dtype == pl.Null:
            raise GraphError(f"{self._where}: the type of column {name!r} is unknown: .cast(...) it")
        if self._looks_at_other_rows(expression):
            raise GraphError(
                f"{self._where}: {expression} looks at more than one row. Where a batch begins and ends is "
                "chance; over rows of a stream compute in a window: key_by(...).window(...).aggregate(...)"
            )
        return pa.field(name, plain_type(column.to_arrow().type))

    def rows(
        self, before: Rows, columns: NamedColumns, record_type: type | None, event_time: str | None = None
    ) -> Rows:
        """The rows with these columns. `event_time`: the one that is computed to be the event time; without,
        the one that was it, if it is among them as it is."""
        schema = pa.schema([self.field(n, e) for n, e in columns])
        event_time = event_time or passed_on(before.event_time, columns)
        return Rows(schema, record_type, before.has_event_time, event_time)

    def predicate(self, expression: pl.Expr) -> None:
        """Raises GraphError unless the expression says true or false for each row."""
        field = self.field("predicate", expression)
        if field.type != pa.bool_():
            raise GraphError(f"{self._where}: a filter needs true or false, but {expression} is {field.type}")

    def _split(self, expression: pl.Expr) -> list[tuple[str, pl.Expr]]:
        """`col("a", "b")` and selectors as one expression for each column."""
        if not expression.meta.has_multiple_outputs():
            for root in expression.meta.root_names():
                self.need(root)
            return [(expression.meta.output_name(), expression)]
        if not expression.meta.is_column_selection():
            raise GraphError(
                f"{self._where}: {expression} makes several columns: write one expression for each"
            )
        try:
            names = self._empty().select(expression).columns
        except pl.exceptions.ColumnNotFoundError as error:
            raise GraphError(f"{self._where}: {expression}: {str(error).splitlines()[0]}") from error
        return [(name, pl.col(name)) for name in names]

    def _empty(self) -> pl.DataFrame:
        frame = pl.from_arrow(self._schema.empty_table())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _looks_at_other_rows(self, expression: pl.Expr) -> bool:
        """Whether rows together give another result than each by itself; no if it can't be tried."""
        roots = sorted(set(expression.meta.root_names()))
        types = self._empty().schema
        try:
            frame = pl.DataFrame([_sample(name, types[name]) for name in roots])
            if not roots:
                frame = pl.DataFrame({"row": _NUMBERS})
            together = _rows(frame, expression)
            alone = pl.concat([_rows(frame[row : row + 1], expression) for row in range(len(frame))])
        except Exception:  # a strict cast, say, that the sample's values don't stand
            return False
        return len(together) != len(frame) or not _are_equal(together, alone)


def _rows(frame: pl.DataFrame, expression: pl.Expr) -> pl.Series:
    """The expression for each row; a literal stands for every row."""
    column = frame.select(expression).to_series()
    is_literal = not expression.meta.root_names() and len(column) == 1
    return pl.concat([column] * len(frame)) if is_literal else column


def _are_equal(together: pl.Series, alone: pl.Series) -> bool:
    """Polars divides a column by multiplying, and a single value by dividing: the last digit may differ."""
    if not together.dtype.is_float():
        return together.equals(alone)
    is_close = np.isclose(together.to_numpy(), alone.to_numpy(), rtol=1e-6, atol=0.0, equal_nan=True)
    return together.is_null().equals(alone.is_null()) and bool(is_close.all())


def _sample(name: str, dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Struct):
        fields = [_sample(name, inner) for name, inner in pl.Schema(dtype.to_schema()).items()]
        return pl.DataFrame(fields).to_struct(name)
    if isinstance(dtype, pl.List):
        inner = _sample("item", pl.Schema({"item": dtype.inner})["item"])
        return pl.Series(name, [inner[:2], inner[:0], None, inner[3:], inner[3:]], dtype=dtype)
    values = _SAMPLES.get(type(dtype), _NUMBERS)
    return pl.Series(name, values).cast(dtype)


def refuse_event_time_without_watermarks(uid: str, event_time: str, has_event_time: bool) -> None:
    """Event time moves on by watermarks alone, and those come from the sources."""
    if not has_event_time:
        raise GraphError(
            f"operator {uid!r}: event_time={event_time!r}, but no watermark comes with this stream, so no "
            "window would ever fire: give the source watermarks= (by its records' own timestamps, if it has "
            "no column for it), and behind= says how much earlier the new times may be"
        )


def check_event_time(name: str, schema: pa.Schema, uid: str, what: str = "event-time column") -> None:
    """Raises GraphError unless the column can be event time: int64 in ms, or a timestamp."""
    field = ColumnCheck(uid, schema).need(name, what)
    if field.type != pa.int64() and not pa.types.is_timestamp(field.type):
        raise GraphError(
            f"operator {uid!r}: {what} {name!r} is {field.type}; "
            "it must be int (ms since the epoch) or a timestamp"
        )


def check_watermarks(strategy: WatermarkStrategy, source: Source, uid: str) -> None:
    """Raises GraphError unless this source can have this strategy."""
    schema = source.schema
    if strategy.event_time is not None:
        check_event_time(strategy.event_time, schema, uid)
    if strategy.marker is not None:
        check_event_time(strategy.marker, schema, uid, "watermark column")
    if strategy.generator is not None and not callable(strategy.generator):
        raise GraphError(
            f"source {uid!r}: {strategy.generator!r} can't be called: write the class, without ()"
        )
    if strategy.alignment is not None:
        _check_alignment(source, uid)


def _check_alignment(source: Source, uid: str) -> None:
    """Raises GraphError unless the source's readers can leave splits unread."""
    if not (isinstance(source, PausableSource) and source.can_pause):
        raise GraphError(
            f"source {uid!r}: watermark alignment leaves splits unread for a while, and the readers of "
            f"{type(source).__name__} can't (see PausableSource): leave out with_watermark_alignment(...) "
            "here; the other sources of the group can be aligned without this one"
        )


def check_same_columns(uid: str, first: Input, other: Input) -> None:
    """Raises GraphError unless both have the same columns, which mean the same. Nulls may be in either."""
    ours, theirs = first.rows.schema, other.rows.schema
    if list(map(_meaning, ours)) != list(map(_meaning, theirs)):
        shown = [", ".join(map(_shown, schema)) for schema in (ours, theirs)]
        raise GraphError(
            f"operator {uid!r}: the streams have different columns: {first.step.uid!r} has {shown[0]}; "
            f"{other.step.uid!r} has {shown[1]}. Bring them together with select(...)"
        )


def _meaning(field: pa.Field) -> tuple[Any, ...]:
    arrow = field.type
    inner = tuple(_meaning(arrow.field(i)) for i in range(arrow.num_fields))
    return field.name, arrow, form_of(field), outside_name(field), inner


def _shown(field: pa.Field) -> str:
    form, outside = form_of(field), outside_name(field)
    inner = [_shown(field.type.field(i)) for i in range(field.type.num_fields)]
    said = [form] if form else []
    said += [f"called {outside!r}"] if outside != field.name else []
    said += [f"in it {each}" for each in inner if each.endswith(")")]
    return f"{field.name} {field.type}" + (f" ({', '.join(said)})" if said else "")
