"""Csv: values between commas, with a line of names above them (RFC 4180); plain, or packed as `.gz`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from onceflow.connectors.files.file_format import BadRecord, Piece, WritableFile, bad_in_file
from onceflow.connectors.files.packing import (
    ENDINGS,
    WRITTEN,
    Kept,
    PackedFile,
    check_compression,
    compression_of,
    packed_endings,
    unpacked_bytes,
)
from onceflow.connectors.files.place import Place, StoredFiles
from onceflow.connectors.files.record_blocks import (
    BLOCK_BYTES,
    UncompressedFile,
    blocks,
    unquoted_line_starts,
    unquoted_lines_end,
)
from onceflow.connectors.formats.csv_cells import cells_of, typed_cells
from onceflow.runtime.errors import BadRecordError, GraphError, OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest

_HEADER_BYTES = 1 << 16
"""How much is read at a time to find the end of the first line."""


@explained
@dataclass(frozen=True)
class Csv:
    """A FileFormat. `delimiter`: one character. A value may be in quotes, with delimiters and line ends in
    it.

    A cell that is empty, and not in quotes, is null; in a column of text that can't be null it is an empty
    text. Columns are found by their names: others may be there, in any order. `compression`: see JsonLines.
    """

    delimiter: str = ","
    block_bytes: int = BLOCK_BYTES
    compression: str | None = None

    def __post_init__(self) -> None:
        check_compression(self.compression, (*ENDINGS, "none"), "Csv")
        if len(self.delimiter.encode()) != 1 or self.delimiter in '"\n\r':
            raise OptionError(
                f"delimiter={self.delimiter!r}: it has to be one character, and no quote or line end"
            )

    @property
    def name(self) -> str:
        return "csv"

    @property
    def endings(self) -> tuple[str, ...]:
        return packed_endings((".csv",))

    @property
    def ending(self) -> str:
        return ".csv" + ENDINGS.get(self.compression or "", "")

    @property
    def has_prefix(self) -> bool:
        return True

    def compressed(self, compression: str, where: str) -> Csv:
        check_compression(compression, (*WRITTEN, "none"), where)
        return replace(self, compression=compression)

    def check(self, schema: pa.Schema, where: str) -> None:
        for field in schema:
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise GraphError(
                    f"{where}: column {field.name!r} is {field.type}, for which CSV has no form: leave it "
                    "out, make text of it, or use jsonl or parquet"
                )

    def cuts(self, place: Place, path: str, size: int) -> list[int]:
        """Whether a line end is inside of quotes is known from the beginning on only."""
        return []

    def of_type(self, of: Any) -> Csv:
        return self

    def decoder(self, schema: pa.Schema) -> CsvDecoder:
        return CsvDecoder(self, schema)

    def tolerant_decoder(self, schema: pa.Schema) -> CsvDecoder:
        """See TolerantFormat. A line of names that can't be read is the whole file's, and still raises."""
        return CsvDecoder(self, schema, tolerates_bad=True)

    def encoder(self, file: WritableFile, schema: pa.Schema) -> CsvEncoder:
        return CsvEncoder(PackedFile(file, compression_of("", self.compression)), schema, self.delimiter)

    def join(self, files: Iterable[bytes], file: WritableFile, schema: pa.Schema) -> None:
        """The line of names is left out of all but the first; what is packed is packed anew for it."""
        compression = compression_of("", self.compression)
        packed = PackedFile(file, compression)
        names = io.BytesIO()
        CsvEncoder(PackedFile(names, None), schema, self.delimiter).finish()
        for n, content in enumerate(files):
            lines = unpacked_bytes(content, compression)
            assert lines.startswith(names.getvalue()), "it was written with these columns"
            packed.write(memoryview(lines)[len(names.getvalue()) if n else 0 :])
        packed.end()


class CsvDecoder:
    """A FileDecoder. A place is a byte of what is unpacked."""

    def __init__(self, form: Csv, schema: pa.Schema, tolerates_bad: bool = False) -> None:
        self._form = form
        self._tolerates_bad = tolerates_bad
        self._schema = schema
        self._convert = cells_of(schema)

    def pieces(self, place: StoredFiles, path: str, at: int, end: int = 0) -> Iterator[Piece]:
        assert not end, "it is never cut"
        with place.open(path) as file:
            header = self._header(UncompressedFile(file, path, self._form.compression), path)
        names = self._names(header, path) if header else []
        with place.open(path) as file:
            begin_at = max(at, len(header))
            unpacked = UncompressedFile(file, path, self._form.compression)
            for begin, block in blocks(unpacked, begin_at, path, unquoted_lines_end, self._form.block_bytes):
                batch, bad = self._decode(block, names, begin, path)
                yield Piece(begin, 0, batch, bad)

    def _header(self, file: UncompressedFile, path: str) -> bytes:
        """The first line; nothing of a file without any."""
        _, block = next(blocks(file, 0, path, unquoted_lines_end, _HEADER_BYTES), (0, b""))
        return block[: int(unquoted_line_starts(block)[1])] if block else b""

    def _names(self, line: bytes, path: str) -> list[str]:
        try:
            table = self._read(line, None, None)
        except pa.ArrowInvalid as error:
            raise BadRecordError(f"{path}: the line of names can't be read: {_reason(error)}") from error
        names: list[str] = table.column_names
        for name in self._schema.names:
            if name not in names:
                raise BadRecordError(
                    f"{path} has no column {name!r}{nearest(name, names)}; its first line names "
                    f"{', '.join(names)}"
                )
            if names.count(name) > 1:
                raise BadRecordError(f"{path} has two columns {name!r}")
        return names

    def _decode(
        self, block: bytes, names: list[str], begin: int, path: str
    ) -> tuple[pa.RecordBatch, tuple[BadRecord, ...]]:
        if not block.strip():
            return pa.RecordBatch.from_pylist([], self._schema), ()
        try:
            return self._batch(self._read(block, names, self._convert)), ()
        except (pa.ArrowInvalid, _NullError):
            starts = unquoted_line_starts(block).tolist()
            good, bad = self._by_halves(block, names, starts, begin)
            if not bad:
                raise
            if not self._tolerates_bad:
                raise bad_in_file(path, bad[0]) from None
            table = pa.Table.from_batches(good, self._schema).combine_chunks()
            return next(iter(table.to_batches()), pa.RecordBatch.from_pylist([], self._schema)), tuple(bad)

    def _by_halves(
        self, block: bytes, names: list[str], starts: list[int], begin: int
    ) -> tuple[list[pa.RecordBatch], list[BadRecord]]:
        """The records of a block of which some can't be read: as many at once as can be."""
        good, bad, count = list[pa.RecordBatch](), list[BadRecord](), 0
        parts = [(0, len(starts) - 1)]
        while parts and (self._tolerates_bad or not bad):
            low, high = parts.pop()
            lines = block[starts[low] : starts[high]]
            if not lines.strip():
                continue
            try:
                batch = self._batch(self._read(lines, names, self._convert))
            except (pa.ArrowInvalid, _NullError) as error:
                if high - low > 1:
                    middle = (low + high) // 2
                    parts += [(middle, high), (low, middle)]
                    continue
                bad.append(BadRecord(count, begin + starts[low], lines.rstrip(b"\r\n"), _reason(error)))
                count += 1
            else:
                good.append(batch)
                count += batch.num_rows
        return good, bad

    def _read(self, block: bytes, names: list[str] | None, convert: pa_csv.ConvertOptions | None) -> pa.Table:
        """The rows of a block, as Arrow reads them. `names` None: the first line has them."""
        return pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(use_threads=False, column_names=names, block_size=len(block) + 1),
            pa_csv.ParseOptions(delimiter=self._form.delimiter, newlines_in_values=b'"' in block),
            convert,
        )

    def _batch(self, table: pa.Table) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            array = table.column(field.name).combine_chunks()
            if array.null_count and not field.nullable:
                if field.type != pa.string():
                    raise _NullError(f"column {field.name!r} is empty, and may not be null")
                array = pc.fill_null(array, "")
            arrays.append(typed_cells(array, field))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class CsvEncoder:
    """A FileEncoder."""

    gathered_bytes = 0

    def __init__(self, file: PackedFile, schema: pa.Schema, delimiter: str) -> None:
        self._file = file
        options = pa_csv.WriteOptions(include_header=True, delimiter=delimiter)
        self._writer = pa_csv.CSVWriter(pa.PythonFile(Kept(file), "w"), schema, write_options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def flush(self) -> None:
        self._file.end()

    def finish(self) -> None:
        self._writer.close()
        self._file.end()


class _NullError(Exception):
    """A value is missing that has to be there."""


def _reason(error: Exception) -> str:
    return re.sub(r"^CSV parse error: |\bRow #\d+: ", "", str(error).splitlines()[0])
