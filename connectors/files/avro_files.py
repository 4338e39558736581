"""AvroFiles: Avro's object container files, which say the schema that they were written with."""

from __future__ import annotations

import json
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.files.avro_blocks import (
    CODECS,
    Block,
    block_bytes,
    block_cuts,
    header_bytes,
    join_containers,
    read_blocks,
    read_header,
)
from onceflow.connectors.files.file_format import BadRecord, Piece, WritableFile, bad_in_file
from onceflow.connectors.files.packing import check_compression
from onceflow.connectors.files.place import Place, StoredFiles
from onceflow.connectors.files.rolling import check_split_size, size_bytes
from onceflow.connectors.formats.avro import Avro
from onceflow.connectors.formats.avro.datum_ends import DatumEnds, quick_datum_ends
from onceflow.connectors.formats.avro.plan import UnreadableSchemaError
from onceflow.connectors.formats.avro.rows import BadDatumError
from onceflow.connectors.formats.avro.schema.nodes import parse_schema
from onceflow.connectors.formats.format import Decoder
from onceflow.runtime.errors import BadRecordError, DataLossError, GraphError, OptionError, UsageError
from onceflow.runtime.explained_calls import explained

BLOCK_BYTES = 1 << 18
"""A block that is written has about so many bytes before it is packed."""
GATHERED_BYTES = 1 << 20


@explained
@dataclass(frozen=True)
class AvroFiles:
    """A FileFormat. What is a good value, see `Avro`: a file's columns are found by their names, whatever
    schema it was written with, and what a file does not have is its default.

    `compression` of what is written: "deflate" (which every Avro reader knows), "snappy", "zstd" or "none";
    read are bzip2 and xz, too. `record`: the name of the record in the schema of what is written. Needs
    onceflow[avro].
    """

    compression: str = "deflate"
    record: str = "Record"
    split_size: str | int | None = None
    """See JsonLines; the pieces are blocks."""
    gathered_bytes: int = GATHERED_BYTES
    """Small blocks are decoded together until they have so many bytes."""
    values: Avro | None = None
    """What a record is; made of the type of the records."""

    def __post_init__(self) -> None:
        check_compression(self.compression, tuple(CODECS), "AvroFiles")
        check_split_size(self.split_size)

    @property
    def name(self) -> str:
        return "avro"

    @property
    def endings(self) -> tuple[str, ...]:
        return (".avro",)

    @property
    def ending(self) -> str:
        return ".avro"

    @property
    def has_prefix(self) -> bool:
        return True  # it is whole after each block

    def compressed(self, compression: str, where: str) -> AvroFiles:
        check_compression(compression, tuple(CODECS), where)
        return replace(self, compression=compression)

    def check(self, schema: pa.Schema, where: str) -> None:
        try:
            self._written().encoder(schema)
        except UsageError as error:
            raise GraphError(f"{where}: {error}") from error

    def cuts(self, place: Place, path: str, size: int) -> list[int]:
        piece_bytes = None if self.split_size is None else size_bytes(self.split_size, "split_size")
        if not piece_bytes or size <= piece_bytes:
            return []
        with place.open(path) as file:
            return block_cuts(file, read_header(file, path), size, piece_bytes)

    def of_type(self, of: Any) -> AvroFiles:
        return replace(self, values=Avro(of, framing="none"))

    def columns_of(self, place: StoredFiles, path: str) -> pa.Schema:
        """See DescribingFormat."""
        with place.open(path) as file:
            columns = Avro(read_header(file, path).schema, framing="none").schema
        assert columns is not None, "it has a type"
        return columns

    def decoder(self, schema: pa.Schema) -> AvroFileDecoder:
        return AvroFileDecoder(self, schema)

    def tolerant_decoder(self, schema: pa.Schema) -> AvroFileDecoder:
        """See TolerantFormat."""
        return AvroFileDecoder(self, schema, tolerates_bad=True)

    def encoder(self, file: WritableFile, schema: pa.Schema) -> AvroFileEncoder:
        return AvroFileEncoder(file, schema, self._written(), CODECS[self.compression])

    def join(self, files: Iterable[bytes], file: WritableFile, schema: pa.Schema) -> None:
        """Blocks are copied as they are packed."""
        join_containers(files, file)

    def _written(self) -> Avro:
        return Avro(framing="none", name=self.record)


class AvroFileDecoder:
    """A FileDecoder. A place is the byte where a block begins; 0: the first one."""

    def __init__(self, form: AvroFiles, schema: pa.Schema, tolerates_bad: bool = False) -> None:
        assert form.values is not None, "of_type was called"
        self._values = form.values
        self._columns = frozenset(schema.names)
        self._gathered_bytes = form.gathered_bytes
        self._tolerates_bad = tolerates_bad
        self._decoders: dict[str, tuple[Decoder, DatumEnds]] = {}
        """How files are read that were written with this schema."""

    def pieces(self, place: StoredFiles, path: str, at: int, end: int = 0) -> Iterator[Piece]:
        with place.open(path) as file:
            header = read_header(file, path)
            decoder, ends = self._decoder(header.schema, path)
            gathered: list[Block] = []
            size = 0
            for block in read_blocks(file, path, header, at, end):
                gathered.append(block)
                size += len(block.datums)
                if size >= self._gathered_bytes:
                    yield self._piece(gathered, decoder, ends, path)
                    gathered, size = [], 0
            if gathered:
                yield self._piece(gathered, decoder, ends, path)

    def _decoder(self, schema: Any, path: str) -> tuple[Decoder, DatumEnds]:
        text = json.dumps(schema)
        if text not in self._decoders:
            try:
                writer = parse_schema(schema)
                self._decoders[text] = (
                    self._values.decoder_of(writer, self._columns),
                    quick_datum_ends(writer),
                )
            except (OptionError, UnreadableSchemaError) as error:
                raise BadRecordError(
                    f"{path} can't be read as this type: {error}; give the type= that it was written with, "
                    "or defaults for what it lacks"
                ) from error
        return self._decoders[text]

    def _piece(self, blocks: list[Block], decoder: Decoder, ends: DatumEnds, path: str) -> Piece:
        offsets, firsts, size = [np.zeros(1, np.int64)], [0], 0
        for block in blocks:
            firsts.append(firsts[-1] + block.records)
            try:
                offsets.append(size + ends(block.datums, block.records))
            except (BadDatumError, RecursionError) as error:
                raise DataLossError(
                    f"{path} is damaged in the block at byte {block.at}: {error}; put the file back as it "
                    "was written"
                ) from error
            size += len(block.datums)
        places = pa.py_buffer(np.concatenate(offsets))
        content = pa.py_buffer(b"".join(block.datums for block in blocks))
        datums = pa.Array.from_buffers(pa.large_binary(), firsts[-1], [None, places, content])
        decoded = decoder.decode(datums)
        bad = []
        for row, reason in decoded.bad:
            n = bisect_right(firsts, row) - 1
            said = f"record {row - firsts[n]} of the block there: {reason}"
            bad.append(BadRecord(row, blocks[n].at, datums[row].as_py(), said))
        if bad and not self._tolerates_bad:
            raise bad_in_file(path, bad[0])
        return Piece(blocks[0].at, 0, decoded.batch, tuple(bad))


class AvroFileEncoder:
    """A FileEncoder. Datums are gathered into blocks."""

    def __init__(self, file: WritableFile, schema: pa.Schema, values: Avro, codec: str) -> None:
        self._file = file
        self._codec = codec
        self._encoder = values.encoder(schema)
        self._sync = uuid.uuid4().bytes
        self._datums: list[bytes] = []
        self._count = 0
        self.gathered_bytes = 0
        file.write(header_bytes(json.dumps(values.written_schema(schema)), codec, self._sync))

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        values = self._encoder.encode(batch).cast(pa.large_binary())
        _, offsets, content = values.buffers()
        ends = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
        first = 0
        while first < len(values):
            room = ends[first] + BLOCK_BYTES - self.gathered_bytes
            last = max(first + 1, int(np.searchsorted(ends, room, "right")) - 1)
            self._datums.append(b"" if content is None else content[ends[first] : ends[last]].to_pybytes())
            self.gathered_bytes += int(ends[last] - ends[first])
            self._count += last - first
            first = last
            if first < len(values) or self.gathered_bytes >= BLOCK_BYTES:
                self.flush()

    def flush(self) -> None:
        if self._count:
            datums = b"".join(self._datums)
            self._file.write(block_bytes(self._count, datums, self._codec, self._sync))
            self._datums, self._count, self.gathered_bytes = [], 0, 0

    def finish(self) -> None:
        self.flush()
