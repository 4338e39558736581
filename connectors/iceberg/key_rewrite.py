"""Updates by key: the data files that have one of the keys are written anew without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
)
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

_In: Any = In  # their types say that they take no positional arguments
_AtLeast: Any = GreaterThanOrEqual
_AtMost: Any = LessThanOrEqual
_LISTED_KEYS_MAX = 200
"""The most keys that are looked for one by one in what manifests say of files; more are between two."""


def touched_files(table: Table, keys: pa.Table) -> Iterator[tuple[DataFile, pa.Table]]:
    """Each data file that has one of the keys, with the rows of it that have none. One is read at a time."""
    names = keys.schema.names
    wanted = pl.from_arrow(keys)
    assert isinstance(wanted, pl.DataFrame)
    key_columns = table.schema().select(*names)
    for task in table.scan(row_filter=_files_of(keys)).plan_files():
        whole = FileScanTask(
            task.file, task.delete_files
        )  # without the filter, which is for whole files here
        found = _read(table, key_columns, whole).select(names)
        stays = _without(found.cast(keys.schema), wanted)
        if len(stays) < len(found):
            yield task.file, _read(table, table.schema(), whole).take(stays)


def _read(table: Table, schema: Schema, task: FileScanTask) -> pa.Table:
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    return scan.to_table([task])


def _without(found: pa.Table, keys: pl.DataFrame) -> pa.Array:
    """The numbers of the rows that have none of the keys."""
    rows = pl.from_arrow(found)
    assert isinstance(rows, pl.DataFrame)
    names = [f"key {n}" for n in range(len(rows.columns))]
    rows = rows.rename(dict(zip(rows.columns, names, strict=True))).with_row_index("row")
    keys = keys.rename(dict(zip(keys.columns, names, strict=True)))
    return rows.join(keys, on=names, how="anti").get_column("row").sort().to_arrow()


def _files_of(keys: pa.Table) -> BooleanExpression:
    """An expression that is true for all rows with one of the keys, and for as few others as is cheap."""
    found: BooleanExpression = AlwaysTrue()
    for column, name in zip(keys.columns, keys.schema.names, strict=True):
        values: Sequence[Any] = column.unique().to_pylist()
        if not all(type(value) in (int, str) for value in values):
            continue
        if len(values) <= _LISTED_KEYS_MAX:
            found = And(found, _In(name, values))
        else:
            low, high = min(values), max(values)
            found = And(found, And(_AtLeast(name, low), _AtMost(name, high)))
    return found
