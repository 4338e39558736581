"""Parquet: columns of which only those are read that somebody needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from onceflow.connectors.files.file_format import Piece
from onceflow.connectors.files.place import Place
from onceflow.runtime.errors import BadRecordError, DataLossError
from onceflow.runtime.nearest import nearest

BATCH_ROWS = 1 << 15
"""How many rows of a row group are decoded at once."""
GROUP_ROWS = 1 << 17
"""The most rows of a row group that is written."""


@dataclass(frozen=True)
class Parquet:
    """A FileFormat."""

    batch_rows: int = BATCH_ROWS

    @property
    def name(self) -> str:
        return "parquet"

    @property
    def endings(self) -> tuple[str, ...]:
        return (".parquet",)

    def check(self, schema: pa.Schema, where: str) -> None:
        """Parquet has a form for every column."""

    def of_type(self, of: Any) -> Parquet:
        return self

    def decoder(self, schema: pa.Schema) -> ParquetDecoder:
        return ParquetDecoder(schema, self.batch_rows)

    def encoder(self, file: BinaryIO, schema: pa.Schema) -> ParquetEncoder:
        return ParquetEncoder(file, schema)


class ParquetDecoder:
    """A FileDecoder. A place is a row group."""

    def __init__(self, schema: pa.Schema, batch_rows: int) -> None:
        self._schema = schema
        self._batch_rows = batch_rows

    def pieces(self, place: Place, path: str, at: int) -> Iterator[Piece]:
        with place.open(path) as source, _opened(source, path) as file:
            there = file.schema_arrow
            wanted = [field for field in self._schema if field.name in there.names]
            self._refuse_missing(there, path)
            for group in range(at, file.num_row_groups):
                row = 0
                for batch in self._batches(file, group, [field.name for field in wanted], path):
                    yield Piece(group, row, self._typed(batch, path, group))
                    row += batch.num_rows

    def _batches(
        self, file: pq.ParquetFile, group: int, names: list[str], path: str
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from file.iter_batches(self._batch_rows, [group], names, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise DataLossError(f"{path}: row group {group} can't be read: {error}") from error

    def _refuse_missing(self, there: pa.Schema, path: str) -> None:
        for field in self._schema:
            if field.name not in there.names and not field.nullable:
                raise BadRecordError(
                    f"{path} has no column {field.name!r}{nearest(field.name, there.names)}; it has "
                    f"{', '.join(there.names)}"
                )

    def _typed(self, batch: pa.RecordBatch, path: str, group: int) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            if field.name not in batch.schema.names:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            array = batch.column(field.name)
            try:
                array = array.cast(field.type)
            except pa.ArrowException as error:
                raise BadRecordError(
                    f"{path}: column {field.name!r} is {array.type} there, and wanted as {field.type}: "
                    f"{str(error).splitlines()[0]}"
                ) from error
            if array.null_count and not field.nullable:
                raise BadRecordError(
                    f"{path}: column {field.name!r} is null in a row of row group {group}, and may not be"
                )
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class ParquetEncoder:
    """A FileEncoder. Rows are gathered into row groups."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= GROUP_ROWS:
            self._write_group()

    def finish(self) -> None:
        if self._batches:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._batches, self._schema), GROUP_ROWS)
        self._batches, self._rows = [], 0


def _opened(source: BinaryIO, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source)
    except (pa.ArrowException, OSError) as error:
        raise DataLossError(f"{path} is no whole Parquet file: {error}") from error
