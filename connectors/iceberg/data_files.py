"""Data files of an Iceberg table: where they are, what is said of them, and how a manifest names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from onceflow.connectors.iceberg.partition_values import record_of
from onceflow.connectors.tables.data_file import WrittenFile
from onceflow.connectors.tables.file_store import FileStore
from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.errors import Fatal

FOLDER = "data/onceflow"
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def file_store(table: Table, where: str) -> FileStore:
    """The storage of the table, with the credentials that the catalog gives. Raises Fatal."""
    if not isinstance(table.io, PyArrowFileIO):
        raise Fatal(
            f"{where}: the catalog asks for {type(table.io).__name__}, and files are written by "
            "PyArrowFileIO: leave py-io-impl out"
        )
    scheme, host, path = PyArrowFileIO.parse_location(table.location(), table.io.properties)
    fs = table.io.fs_by_scheme(scheme, host)
    return FileStore(fs, path.rstrip("/"), Path(path) if scheme == "file" else None)


@dataclass(frozen=True, slots=True)
class Describe:
    """What a manifest says of a file, by its footer: readers skip files by it."""

    schema: Schema
    properties: Mapping[str, str]

    def __call__(self, footer: pq.FileMetaData) -> Mapping[str, Json]:
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(self.schema, dict(self.properties)),
            parquet_column_mapping=parquet_path_to_id_mapping(self.schema),
        ).to_serialized_dict()
        told: dict[str, Json] = {"split_offsets": statistics["split_offsets"]}
        told |= {name: {str(n): size for n, size in statistics[name].items()} for name in _COUNTS}
        told |= {name: {str(n): bound.hex() for n, bound in statistics[name].items()} for name in _BOUNDS}
        return told


def as_manifest_entry(file: WrittenFile, location: str) -> DataFile:
    """A written file, as a manifest of the table at this location names it."""
    told: dict[str, Any] = {"split_offsets": file.described["split_offsets"]}
    told |= {name: {int(n): size for n, size in file.described[name].items()} for name in _COUNTS}
    told |= {
        name: {int(n): bytes.fromhex(bound) for n, bound in file.described[name].items()} for name in _BOUNDS
    }
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location.rstrip('/')}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=record_of(file.partition),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        sort_order_id=None,
        spec_id=file.partition["spec"],
        equality_ids=None,
        key_metadata=None,
        **told,
    )
