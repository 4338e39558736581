"""The blocks of an Avro object container file: datums of one schema, packed, each block followed by the
file's sync marker.

    header  "Obj" 1, a map with avro.schema and avro.codec, 16 bytes that are the marker
    block   how many datums, how many bytes they take packed, these, the marker
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import cramjam

from onceflow.connectors.files.file_format import WritableFile
from onceflow.connectors.files.record_blocks import RECORD_BYTES_MAX
from onceflow.runtime.errors import DataLossError

SYNC_BYTES = 16
_MAGIC = b"Obj\x01"
_EMPTY_DATUMS_MAX = 1 << 20
"""A block of more datums than it has bytes, and than these, is taken for damaged."""
_SCAN_BYTES = 1 << 16
CODECS = {"none": "null", "deflate": "deflate", "snappy": "snappy", "zstd": "zstandard"}
"""What is written: the name that users give, and the one in the file."""


class Header(NamedTuple):
    """What a file says at its beginning."""

    schema: Any
    """The writer's schema, as json.loads makes it."""
    codec: str
    sync: bytes
    size: int
    """Where the first block begins."""


class Block(NamedTuple):
    """Datums one behind the other, unpacked."""

    at: int
    """The byte where it begins in the file."""
    records: int
    datums: bytes


# --- Reading --------------------------------------------------------------------------------------


class _Reading:
    """A file from some byte on, and where in it reading has come to."""

    def __init__(self, file: BinaryIO, path: str, at: int = 0) -> None:
        self._file = file
        self.path = path
        self.at = self.block = at
        """`block`: where what is being read begins, for messages."""
        file.seek(at)

    def take(self, size: int) -> bytes:
        if not 0 <= size <= RECORD_BYTES_MAX:
            raise self.damaged(f"{size} bytes are said to follow")
        content = self._file.read(size)
        if len(content) < size:
            raise DataLossError(
                f"{self.path} is cut off in the block at byte {self.block}: put the whole file in its place"
            )
        self.at += size
        return content

    def number(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise self.damaged("a number takes more than ten bytes")

    def is_at_end(self) -> bool:
        has_ended = not self._file.read(1)
        self._file.seek(self.at)
        return has_ended

    def damaged(self, why: str) -> DataLossError:
        return DataLossError(
            f"{self.path} is damaged in the block at byte {self.block}: {why}; put the file back as it "
            "was written"
        )


def read_header(file: BinaryIO, path: str) -> Header:
    """Raises DataLossError for a file that is none, that is cut off, or packed in a way that is not known."""
    reading = _Reading(file, path)
    magic = file.read(len(_MAGIC))
    if magic != _MAGIC:
        raise DataLossError(
            f"{path} is no Avro object container file: it begins with {magic!r}, not with {_MAGIC!r}; give "
            "the right format= or take the file away"
        )
    reading.at += len(_MAGIC)
    found: dict[str, bytes] = {}
    while count := reading.number():
        if count < 0:  # then their size in bytes comes first
            count, _ = -count, reading.number()
        for _ in range(count):
            key = reading.take(reading.number()).decode(errors="replace")
            found[key] = reading.take(reading.number())
    sync = reading.take(SYNC_BYTES)
    codec = found.get("avro.codec", b"null").decode(errors="replace")
    if codec not in _UNPACK:
        raise DataLossError(
            f"{path} is packed with {codec!r}, and known are {', '.join(_UNPACK)}: write it anew with one "
            "of these"
        )
    try:
        schema = json.loads(found["avro.schema"])
    except (KeyError, ValueError):
        raise reading.damaged("its header has no schema") from None
    return Header(schema, codec, sync, reading.at)


def read_blocks(file: BinaryIO, path: str, header: Header, at: int, end: int = 0) -> Iterator[Block]:
    """The blocks from this byte on (0: the first) up to this one (0: the last). Raises DataLossError."""
    reading = _Reading(file, path, at or header.size)
    while not (reading.at >= end if end else reading.is_at_end()):
        reading.block = reading.at
        count = reading.number()
        packed = reading.take(reading.number())
        if reading.take(SYNC_BYTES) != header.sync:
            raise reading.damaged("the file's sync marker does not follow it")
        try:
            datums = _UNPACK[header.codec](packed)
        except Exception as error:  # each library has its own
            raise reading.damaged(f"it can't be unpacked with {header.codec} ({error})") from error
        if not 0 <= count <= max(len(datums), _EMPTY_DATUMS_MAX):
            raise reading.damaged(f"{count} records are said to be in {len(datums)} bytes")
        yield Block(reading.block, count, datums)


def block_cuts(file: BinaryIO, header: Header, size: int, piece_bytes: int) -> list[int]:
    """Bytes at which blocks begin, about so far apart: those behind the file's sync marker."""
    cuts: list[int] = []
    at = piece_bytes
    while at < size:
        begin = _behind_sync(file, header, max(at - SYNC_BYTES, header.size))
        if begin is None or begin >= size:
            break
        cuts.append(begin)
        at = begin + piece_bytes
    return cuts


def _behind_sync(file: BinaryIO, header: Header, at: int) -> int | None:
    """Where the first marker from this byte on ends; None: there is none."""
    file.seek(at)
    rest = b""
    while content := file.read(_SCAN_BYTES):
        rest += content
        if (found := rest.find(header.sync)) >= 0:
            return at + found + SYNC_BYTES
        at += max(0, len(rest) - SYNC_BYTES + 1)
        rest = rest[-SYNC_BYTES + 1 :]
    return None


# --- Writing --------------------------------------------------------------------------------------


def header_bytes(schema: str, codec: str, sync: bytes) -> bytes:
    """The beginning of a file. `codec`: as the file names it."""
    said = {"avro.schema": schema, "avro.codec": codec}
    pairs = b"".join(_text(key) + _text(value) for key, value in said.items())
    return _MAGIC + _varint(len(said)) + pairs + _varint(0) + sync


def block_bytes(count: int, datums: bytes, codec: str, sync: bytes) -> bytes:
    """A block of so many datums."""
    packed = _PACK[codec](datums)
    return _varint(count) + _varint(len(packed)) + packed + sync


def join_containers(files: Iterable[bytes], to: WritableFile) -> None:
    """Write the blocks of whole files of one schema and codec as one file, with the first one's marker."""
    sync = b""
    for content in files:
        path = "a file that is joined"
        header = read_header(io.BytesIO(content), path)
        if not sync:
            sync = header.sync
            to.write(content[: header.size])
        reading = _Reading(io.BytesIO(content), path, header.size)
        while not reading.is_at_end():
            reading.block = reading.at
            reading.number()
            reading.take(reading.number())
            to.write(content[reading.block : reading.at] + sync)
            reading.take(SYNC_BYTES)


def _text(value: str) -> bytes:
    return _varint(len(value.encode())) + value.encode()


def _varint(value: int) -> bytes:
    """A number from 0 on, as Avro's long."""
    value <<= 1
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


# --- Codecs ---------------------------------------------------------------------------------------


def _snappy(datums: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(datums)) + zlib.crc32(datums).to_bytes(4, "big")


def _unpack_snappy(packed: bytes) -> bytes:
    datums = bytes(cramjam.snappy.decompress_raw(packed[:-4]))
    if zlib.crc32(datums).to_bytes(4, "big") != packed[-4:]:
        raise ValueError("its checksum is another one")
    return datums


def _unpack_deflate(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    datums = unpacker.decompress(packed)
    if not unpacker.eof:
        raise ValueError("its stream has no end")
    return datums


_PACK: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda datums: bytes(cramjam.deflate.compress(datums)),
    "snappy": _snappy,
    "zstandard": lambda datums: bytes(cramjam.zstd.compress(datums)),
}
_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _unpack_deflate,
    "snappy": _unpack_snappy,
    "zstandard": lambda packed: bytes(cramjam.zstd.decompress(packed)),
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}
