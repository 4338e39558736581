"""Partitions of Iceberg tables: how rows are spread over them, and how their values stand in a manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from onceflow.connectors.tables.grouping import groups
from onceflow.runtime.contracts.json_values import Json


@dataclass(frozen=True, slots=True)
class IcebergPartitioning:
    """A Partitioning. The files have all columns; the manifest has the values of the partition fields, which
    may be computed of a column (day, bucket, truncate)."""

    spec: PartitionSpec
    schema: Schema

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Mapping[str, Json], pa.RecordBatch]]:
        names = []
        rows = batch
        for number, (field, name) in enumerate(self.sources()):
            names.append(f"partition {number}")
            rows = rows.append_column(names[-1], self.values(field, batch.column(name)))
        for part in groups(rows, names) if names else [rows]:
            values = [part.column(name)[0].as_py() for name in names]
            yield self._as_json(values), part.select(batch.schema.names)

    def values(self, field: PartitionField, column: pa.Array) -> pa.Array:
        """The values of a partition field, of those of its column. Raises NotImplementedError, ValueError."""
        of = self.schema.find_field(field.source_id).field_type
        return field.transform.pyarrow_transform(of)(column)

    def sources(self) -> Sequence[tuple[PartitionField, str]]:
        """The partition fields, each with the name of its column."""
        return [(field, str(self.schema.find_column_name(field.source_id))) for field in self.spec.fields]

    def _as_json(self, values: Sequence[Any]) -> Mapping[str, Json]:
        told = [
            partition_record_value(field, value, self.schema)
            for field, value in zip(self.spec.fields, values, strict=True)
        ]
        return {"spec": self.spec.spec_id, "values": [_told(value) for value in told]}


def record_of(partition: Mapping[str, Json]) -> Record:
    """A partition as a manifest has it."""
    return Record(*(_read(value) for value in partition["values"]))


def _told(value: Any) -> Json:
    match value:
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": value.hex()}
    return value


def _read(value: Json) -> Any:
    match value:
        case {"decimal": digits}:
            return Decimal(digits)
        case {"bytes": hexadecimal}:
            return bytes.fromhex(hexadecimal)
    return value
