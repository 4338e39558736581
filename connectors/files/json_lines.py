"""JsonLines: a JSON object a line; plain, or packed as `.gz`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.files.file_format import Piece
from onceflow.connectors.files.place import Place
from onceflow.connectors.files.record_blocks import (
    BLOCK_BYTES,
    UncompressedFile,
    blocks,
    line_starts,
    lines_end,
)
from onceflow.connectors.formats import Json
from onceflow.runtime.errors import BadRecordError, GraphError, UsageError

_BLANK_BYTES = 8
"""A line that is as short as this is looked at: it may be blank."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class JsonLines:
    """A FileFormat. What is a good value, see `Json`; blank lines are no records."""

    values: Json = field(default_factory=Json)
    """What a line is."""
    block_bytes: int = BLOCK_BYTES

    @property
    def name(self) -> str:
        return "jsonl"

    @property
    def endings(self) -> tuple[str, ...]:
        return (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")

    def check(self, schema: pa.Schema, where: str) -> None:
        try:
            Json(schema)
            Json().encoder(schema)
        except UsageError as error:
            raise GraphError(f"{where}: {error}") from error

    def of_type(self, of: Any) -> JsonLines:
        return replace(self, values=Json(of))

    def decoder(self, schema: pa.Schema) -> JsonLinesDecoder:
        return JsonLinesDecoder(self.values, schema, self.block_bytes)

    def encoder(self, file: BinaryIO, schema: pa.Schema) -> JsonLinesEncoder:
        return JsonLinesEncoder(file, schema)


class JsonLinesDecoder:
    """A FileDecoder. A place is a byte of what is unpacked."""

    def __init__(self, values: Json, schema: pa.Schema, block_bytes: int) -> None:
        self._decoder = values.decoder(frozenset(schema.names))
        self._block_bytes = block_bytes

    def pieces(self, place: Place, path: str, at: int) -> Iterator[Piece]:
        with place.open(path) as file:
            for begin, block in blocks(UncompressedFile(file, path), at, path, lines_end, self._block_bytes):
                yield Piece(begin, 0, self._decode(block, begin, path))

    def _decode(self, block: bytes, begin: int, path: str) -> pa.RecordBatch:
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
        if decoded.bad:
            row, reason = decoded.bad[0]
            raise BadRecordError(f"{path}: the record at byte {begin + int(places[row])}: {reason}")
        return decoded.batch


class JsonLinesEncoder:
    """A FileEncoder."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._encoder = Json().encoder(schema)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            values = self._encoder.encode(batch)
            all_of_them = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
            (lines,) = pc.binary_join(all_of_them, pa.scalar(b"\n", values.type))
            self._file.write(lines.as_buffer())
            self._file.write(b"\n")

    def finish(self) -> None:
        """Nothing comes at the end."""
