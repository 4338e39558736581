"""Columns of Delta tables: values of partitions as text, and what a file's footer says of columns. Pure."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from onceflow.connectors.tables.grouping import groups
from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.errors import Fatal

_STATS_COLUMNS_MAX = 32
"""Delta's own writers describe so many columns."""
_STATS_TEXT_MAX = 32


def can_partition(of: pa.DataType) -> bool:
    """Whether a column of this type can say in which partition a row is. No decimal: deltalake 1.6 writes
    those below zero as no reader can read them."""
    is_text = pa.types.is_string(of) or pa.types.is_large_string(of)
    is_number = pa.types.is_integer(of) or pa.types.is_boolean(of)
    return bool(is_text or is_number or pa.types.is_date(of) or pa.types.is_timestamp(of))


@dataclass(frozen=True, slots=True)
class DeltaPartitioning:
    """A Partitioning. The log has the values of the partition columns, the files have the others."""

    where: str
    columns: Sequence[str]
    kept: Sequence[str]

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Mapping[str, Json], pa.RecordBatch]]:
        if not self.columns:
            yield {}, batch
            return
        refuse_empty(batch, self.columns, self.where)
        for rows in groups(batch, self.columns):
            partition = {name: as_text(rows.column(name)[0].as_py()) for name in self.columns}
            yield partition, rows.select(self.kept)


def refuse_empty(batch: pa.RecordBatch, partition_by: Sequence[str], where: str) -> None:
    """Raises Fatal for a partition that would be another one in the log."""
    for name in partition_by:
        column = batch.column(name)
        if pa.types.is_string(column.type) and pc.any(pc.equal(column, "")).as_py():
            raise Fatal(
                f"{where}: partition column {name!r} is the empty text in a row, which Delta reads as null: "
                "give it another value"
            )


def as_text(value: Any) -> str | None:
    """The value of a partition as it stands in the log."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case dt.datetime():
            return value.replace(tzinfo=None).strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def described(footer: pq.FileMetaData) -> Mapping[str, Json]:
    """What the log says of a file: readers skip files by it."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(min(footer.num_columns, _STATS_COLUMNS_MAX)):
        name = footer.schema.column(column).path
        parts = [footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups)]
        if "." in name or any(part is None for part in parts):
            continue
        if all(part.has_null_count for part in parts):
            nulls[name] = sum(part.null_count for part in parts)
        with_values = [part for part in parts if part.num_values]
        if not with_values or not all(part.has_min_max for part in with_values):
            continue
        low = _bound(min(part.min for part in with_values), is_upper=False)
        high = _bound(max(part.max for part in with_values), is_upper=True)
        if low is not None and high is not None:
            lowest[name], highest[name] = low, high
    stats = {
        "numRecords": footer.num_rows,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }
    return {"stats": json.dumps(stats)}


def _bound(value: Any, *, is_upper: bool) -> Any:
    """A value that no row is below, or above; None: nothing is said. Nothing is said of floats, since the
    footer leaves NaN out, and Spark takes it for the largest."""
    match value:
        case bool() | float():
            return None
        case int():
            return value
        case str():
            return value if len(value) <= _STATS_TEXT_MAX else None
        case dt.datetime():
            # The log has milliseconds only.
            micros = value.microsecond % 1000
            rounded = value + dt.timedelta(microseconds=(1000 - micros if is_upper and micros else -micros))
            zone = "Z" if value.tzinfo else ""
            return rounded.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
        case dt.date():
            return value.isoformat()
    return None
