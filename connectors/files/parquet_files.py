"""Parquet: columns of which only those are read that somebody needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from dataclasses import field as of_class
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from onceflow.connectors.files.file_format import Piece, WritableFile
from onceflow.connectors.files.packing import Kept, check_compression
from onceflow.connectors.files.place import Place, StoredFiles
from onceflow.connectors.files.rolling import check_split_size, size_bytes
from onceflow.runtime.arrays.timestamps import cast_cutting
from onceflow.runtime.errors import BadRecordError, DataLossError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.types.columns_of_records import array_from_values
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.value_types import RecordType

BATCH_ROWS = 1 << 15
"""How many rows of a row group are decoded at once."""
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
GROUP_ROWS = 1 << 17
"""The most rows of a row group that is written."""


@explained
@dataclass(frozen=True)
class Parquet:
    """A FileFormat. `compression` of what is written: "zstd", "snappy", "gzip", "lz4", "brotli" or "none"."""

    batch_rows: int = BATCH_ROWS
    compression: str = "zstd"
    split_size: str | int | None = None
    """See JsonLines; the pieces are row groups."""
    record: RecordType | None = of_class(default=None, repr=False)
    """What `of_type` has made known: the defaults of columns that a file does not have."""

    def __post_init__(self) -> None:
        check_compression(self.compression, _COMPRESSIONS, "Parquet")
        check_split_size(self.split_size)

    @property
    def name(self) -> str:
        return "parquet"

    @property
    def endings(self) -> tuple[str, ...]:
        return (".parquet",)

    @property
    def ending(self) -> str:
        return ".parquet"

    @property
    def has_prefix(self) -> bool:
        return False  # where the row groups are is said at the end

    def compressed(self, compression: str, where: str) -> Parquet:
        check_compression(compression, _COMPRESSIONS, where)
        return replace(self, compression=compression)

    def check(self, schema: pa.Schema, where: str) -> None:
        """Parquet has a form for every column."""

    def cuts(self, place: Place, path: str, size: int) -> list[int]:
        piece_bytes = None if self.split_size is None else size_bytes(self.split_size, "split_size")
        if not piece_bytes or size <= piece_bytes:
            return []
        with place.open(path) as source, _opened(source, path) as file:
            groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
            sizes = [sum(g.column(n).total_compressed_size for n in range(g.num_columns)) for g in groups]
        cuts, gathered = [], 0
        for group, size in enumerate(sizes):
            if gathered >= piece_bytes:
                cuts.append(group)
                gathered = 0
            gathered += size
        return cuts

    def of_type(self, of: Any) -> Parquet:
        return self if isinstance(of, pa.Schema) else replace(self, record=describe_record(of))

    def columns_of(self, place: StoredFiles, path: str) -> pa.Schema:
        """See DescribingFormat."""
        with place.open(path) as source, _opened(source, path) as file:
            return file.schema_arrow

    def decoder(self, schema: pa.Schema) -> ParquetDecoder:
        return ParquetDecoder(schema, self.batch_rows, self.record)

    def encoder(self, file: WritableFile, schema: pa.Schema) -> ParquetEncoder:
        return ParquetEncoder(file, schema, self.compression)

    def join(self, files: Iterable[bytes], file: WritableFile, schema: pa.Schema) -> None:
        """Small row groups become large ones: rows are read and written anew."""
        joined = self.encoder(file, schema)
        for content in files:
            with pq.ParquetFile(pa.BufferReader(content)) as one:
                for batch in one.iter_batches(self.batch_rows, use_threads=False):
                    joined.write(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        joined.finish()


class ParquetDecoder:
    """A FileDecoder. A place is a row group."""

    def __init__(self, schema: pa.Schema, batch_rows: int, record: RecordType | None) -> None:
        """A column that a file does not have is the default of the record's field, or else null if no record
        but a schema says that it may be."""
        self._schema = schema
        self._batch_rows = batch_rows
        self._defaults = None if record is None else record.defaults
        self._record = record

    def pieces(self, place: StoredFiles, path: str, at: int, end: int = 0) -> Iterator[Piece]:
        with place.open(path) as source, _opened(source, path) as file:
            there = file.schema_arrow
            wanted = [field for field in self._schema if field.name in there.names]
            self._refuse_missing(there, path)
            for group in range(at, end or file.num_row_groups):
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
            may_lack = field.nullable if self._defaults is None else field.name in self._defaults
            if field.name in there.names or may_lack:
                continue
            if f"/{field.name}=" in path:
                raise BadRecordError(
                    f"{path} has no column {field.name!r}, and names of folders are not read: give the field "
                    "a default, or keep the column in the files, too"
                )
            raise BadRecordError(
                f"{path} has no column {field.name!r}{nearest(field.name, there.names)}; it has "
                f"{', '.join(there.names)}. A field that may be missing has a default"
            )

    def _typed(self, batch: pa.RecordBatch, path: str, group: int) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            if field.name not in batch.schema.names:
                arrays.append(self._missing(field, batch.num_rows))
                continue
            array = batch.column(field.name)
            try:
                array = cast_cutting(array, field.type)
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

    def _missing(self, field: pa.Field, rows: int) -> pa.Array:
        if self._record is None:
            return pa.nulls(rows, field.type)
        declared = self._record.field(field.name)
        assert declared is not None, "it is a column of the record"
        assert declared.default is not None, "any other is refused"
        values = [declared.default.make() for _ in range(rows)]
        return array_from_values(values, field, declared.type)


class ParquetEncoder:
    """A FileEncoder. Rows are gathered into row groups."""

    def __init__(self, file: WritableFile, schema: pa.Schema, compression: str) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(pa.PythonFile(Kept(file), "w"), schema, compression=compression)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self.gathered_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.gathered_bytes += batch.nbytes
        if self._rows >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema), GROUP_ROWS)
            self._batches, self._rows, self.gathered_bytes = [], 0, 0

    def finish(self) -> None:
        self.flush()
        self._writer.close()


def _opened(source: BinaryIO, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source)
    except (pa.ArrowException, OSError) as error:
        raise DataLossError(f"{path} is no whole Parquet file: {error}") from error
