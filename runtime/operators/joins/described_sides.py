"""What a join keeps, in words for the manifest: the rows of both sides, and their keys."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from onceflow.runtime.operators.describe import expression_form, key_columns
from onceflow.runtime.operators.joins.frozen_sides import NAMES, TABLE
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns
from onceflow.runtime.state.description import KeyColumn, StateDescription, StatePart, Windows, type_text
from onceflow.runtime.state.evolution.readers import Reader, Readers
from onceflow.runtime.types.value_types import ValueType

Keys = tuple[KeyColumn, ...]


def described_sides(
    kind: str,
    columns: JoinedColumns,
    schemas: Sequence[pa.Schema],
    condition: pl.Expr | None,
    function: str,
    windows: Windows | None = None,
) -> StateDescription:
    """The state of a join that keeps rows of both sides alike. `condition`: further than equal keys;
    `function`: what else decides which rows meet, and what becomes of those without a partner."""
    expression = None if condition is None else expression_form(condition)
    types = [type_text(pa.struct(list(schema))) for schema in schemas]
    parts = tuple(
        StatePart(name, "rows", of, expression=expression, function=function)
        for name, of in zip(NAMES, types, strict=True)
    )
    left, right = described_keys(columns, schemas)
    return StateDescription(kind, TABLE, left, parts, windows, right_keys=right)


def side_readers(schemas: Sequence[pa.Schema]) -> Readers:
    """The types of the rows of both sides, by the names of the sides."""
    return {
        name: Reader((name,), ValueType(pa.struct(list(schema)), nullable=True, is_immutable=True))
        for name, schema in zip(NAMES, schemas, strict=True)
    }


def described_keys(columns: JoinedColumns, schemas: Sequence[pa.Schema]) -> tuple[Keys, Keys]:
    """The key columns of the left and of the right side."""
    left, right = (key_columns(names, schema) for names, schema in zip(columns.keys, schemas, strict=True))
    return left, right
