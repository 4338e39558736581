"""JsonLines: a JSON object a line; plain, or packed as `.gz`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.files.file_format import BadRecord, Piece, WritableFile, bad_in_file
from onceflow.connectors.files.packing import (
    ENDINGS,
    WRITTEN,
    PackedFile,
    check_compression,
    compression_of,
    packed_endings,
)
from onceflow.connectors.files.place import Place, StoredFiles
from onceflow.connectors.files.record_blocks import (
    BLOCK_BYTES,
    UncompressedFile,
    blocks,
    line_cuts,
    line_starts,
    lines_end,
)
from onceflow.connectors.files.rolling import check_split_size, size_bytes
from onceflow.connectors.formats import Json
from onceflow.runtime.errors import GraphError, UsageError
from onceflow.runtime.explained_calls import explained

_BLANK_BYTES = 8
"""A line that is as short as this is looked at: it may be blank."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@explained
@dataclass(frozen=True)
class JsonLines:
    """A FileFormat. What is a good value, see `Json`; blank lines are no records.

    `compression`: "gzip", "zstd", "bz2" or "xz" ("none": they are not packed); by default what a file's name
    ends with. Written are "gzip" and "zstd".
    """

    values: Json = field(default_factory=Json)
    """What a line is."""
    block_bytes: int = BLOCK_BYTES
    compression: str | None = None
    split_size: str | int | None = None
    """Files that are larger and not packed are read in pieces of about this size ("256 MiB"), by several
    slots; None: a file is read by one slot, in order."""

    def __post_init__(self) -> None:
        check_compression(self.compression, (*ENDINGS, "none"), "JsonLines")
        check_split_size(self.split_size)

    @property
    def name(self) -> str:
        return "jsonl"

    @property
    def endings(self) -> tuple[str, ...]:
        return packed_endings((".jsonl", ".ndjson"))

    @property
    def ending(self) -> str:
        return ".jsonl" + ENDINGS.get(self.compression or "", "")

    @property
    def has_prefix(self) -> bool:
        return True

    def compressed(self, compression: str, where: str) -> JsonLines:
        check_compression(compression, (*WRITTEN, "none"), where)
        return replace(self, compression=compression)

    def check(self, schema: pa.Schema, where: str) -> None:
        try:
            Json(schema)
            Json().encoder(schema)
        except UsageError as error:
            raise GraphError(f"{where}: {error}") from error

    def cuts(self, place: Place, path: str, size: int) -> list[int]:
        """A line end is never inside of a record: in JSON it is written as \\n there."""
        piece_bytes = None if self.split_size is None else size_bytes(self.split_size, "split_size")
        if not piece_bytes or size <= piece_bytes or compression_of(path, self.compression) is not None:
            return []
        return line_cuts(place, path, piece_bytes)

    def of_type(self, of: Any) -> JsonLines:
        return replace(self, values=Json(of))

    def decoder(self, schema: pa.Schema) -> JsonLinesDecoder:
        return JsonLinesDecoder(self, schema)

    def tolerant_decoder(self, schema: pa.Schema) -> JsonLinesDecoder:
        """See TolerantFormat."""
        return JsonLinesDecoder(self, schema, tolerates_bad=True)

    def encoder(self, file: WritableFile, schema: pa.Schema) -> JsonLinesEncoder:
        return JsonLinesEncoder(PackedFile(file, compression_of("", self.compression)), schema)

    def join(self, files: Iterable[bytes], file: WritableFile, schema: pa.Schema) -> None:
        """Lines are written behind lines, and what is packed behind what is packed: see packing."""
        for content in files:
            file.write(content)


class JsonLinesDecoder:
    """A FileDecoder. A place is a byte of what is unpacked."""

    def __init__(self, form: JsonLines, schema: pa.Schema, tolerates_bad: bool = False) -> None:
        self._tolerates_bad = tolerates_bad
        self._decoder = form.values.decoder(frozenset(schema.names))
        self._form = form

    def pieces(self, place: StoredFiles, path: str, at: int, end: int = 0) -> Iterator[Piece]:
        with place.open(path) as file:
            content = UncompressedFile(file, path, self._form.compression)
            for begin, block in blocks(content, at, path, lines_end, self._form.block_bytes, end):
                batch, bad = self._decode(block, begin, path)
                yield Piece(begin, 0, batch, bad)

    def _decode(self, block: bytes, begin: int, path: str) -> tuple[pa.RecordBatch, tuple[BadRecord, ...]]:
        if begin == 0 and block.startswith(_BYTE_ORDER_MARK):
            block = b"   " + block[3:]
        starts = line_starts(block)
        # A line's end is white space, which may follow a value: so the lines need not be copied.
        lines = pa.BinaryArray.from_buffers(
            pa.binary(), len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(block)]
        )
        places = starts[:-1]
        short = np.flatnonzero(np.diff(starts) <= _BLANK_BYTES)
        blank = [row for row in short.tolist() if not block[starts[row] : starts[row + 1]].strip()]
        if blank:
            is_record = np.ones(len(places), np.bool_)
            is_record[blank] = False
            lines, places = pc.filter(lines, pa.array(is_record)), places[is_record]
        decoded = self._decoder.decode(lines)
        bad = tuple(
            BadRecord(row, begin + int(places[row]), lines[row].as_py().rstrip(b"\r\n"), reason)
            for row, reason in decoded.bad
        )
        if bad and not self._tolerates_bad:
            raise bad_in_file(path, bad[0])
        return decoded.batch, bad


class JsonLinesEncoder:
    """A FileEncoder."""

    gathered_bytes = 0

    def __init__(self, file: PackedFile, schema: pa.Schema) -> None:
        self._file = file
        self._encoder = Json().encoder(schema)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            values = self._encoder.encode(batch)
            all_of_them = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
            (lines,) = pc.binary_join(all_of_them, pa.scalar(b"\n", values.type))
            self._file.write(lines.as_buffer())
            self._file.write(b"\n")

    def flush(self) -> None:
        self._file.end()

    def finish(self) -> None:
        self._file.end()
