"""Compression of files of lines: gzip, zstd, bzip2 and xz. Such a file may be several compressed ones, one
behind the other, and is unpacked as one: so what was written up to a checkpoint is whole by itself."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import pyarrow as pa
from isal import igzip, isal_zlib

from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

ENDINGS = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2", "xz": ".xz"}
"""The ending of each compression's names."""
WRITTEN = ("gzip", "zstd")
DAMAGED: Any = (gzip.BadGzipFile, isal_zlib.IsalError, lzma.LZMAError, OSError)
"""What reading raises for a file that is not packed so, or damaged; EOFError for one that is cut off."""
_READ_BYTES = 1 << 20
_GZIP_LEVEL = 2
_GZIP_FILE: Any = igzip.IGzipFile


def packed_endings(endings: tuple[str, ...]) -> tuple[str, ...]:
    """These, and each with that of each compression."""
    return (*endings, *(ending + packed for packed in ENDINGS.values() for ending in endings))


def compression_of(name: str, given: str | None) -> str | None:
    """The compression of a file: what is given, or what its name ends with; None: it is not packed."""
    if given is not None:
        return None if given == "none" else given
    return next((each for each, ending in ENDINGS.items() if name.endswith(ending)), None)


def check_compression(given: str | None, offered: tuple[str, ...], where: str) -> None:
    """Raises OptionError for one that is not offered."""
    if given is not None and given not in offered:
        raise OptionError(
            f"{where}: compression={given!r} is none of {', '.join(offered)}{nearest(str(given), offered)}"
        )


def unpacked(file: Any, compression: str) -> BinaryIO:
    """A file to read the unpacked bytes from, in order."""
    return _READERS[compression](file)


def unpacked_bytes(content: bytes, compression: str | None) -> bytes:
    """All of a whole file. `compression` None: it is not packed."""
    if compression is None:
        return content
    file = unpacked(io.BytesIO(content), compression)
    return b"".join(iter(lambda: file.read(_READ_BYTES), b""))


class PackedFile:
    """A file that packs what is written to it, and passes it on to another one."""

    closed = False

    def __init__(self, file: Any, compression: str | None) -> None:
        """`compression` None: it passes it on as it is."""
        self._file = file
        self._open = None if compression is None else _WRITERS[compression]
        self._packer: Any = None

    def write(self, content: Any) -> int:
        if self._open is None:
            self._file.write(content)
        else:
            if self._packer is None:
                self._packer = self._open(self._file)
            self._packer.write(content)
        return memoryview(content).nbytes

    def flush(self) -> None:
        """Whoever has opened the file does that."""

    def end(self) -> None:
        """What was written is whole by itself; what comes next begins anew."""
        if self._packer is not None:
            self._packer.close()
            self._packer = None


class Kept:
    """A file that whoever writes to it does not close."""

    closed = False

    def __init__(self, file: Any) -> None:
        self.write = file.write

    def flush(self) -> None:
        """Whoever has opened the file does that."""

    def close(self) -> None:
        """Whoever has opened the file does that."""


class _Zstd:
    """A pyarrow stream as a file: at its end it has no more bytes, or says that they were cut off."""

    def __init__(self, file: Any) -> None:
        self._stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")

    def read(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except OSError as error:
            raise (EOFError() if "Truncated" in str(error) else error) from error


_READERS: dict[str, Callable[[Any], BinaryIO]] = {
    "gzip": lambda file: cast(BinaryIO, _GZIP_FILE(fileobj=file)),
    "zstd": lambda file: cast(BinaryIO, _Zstd(file)),
    "bz2": lambda file: cast(BinaryIO, bz2.BZ2File(file)),
    "xz": lambda file: cast(BinaryIO, lzma.LZMAFile(file)),  # noqa: SIM115 - there is no block to close it in
}
_WRITERS: dict[str, Callable[[Any], Any]] = {
    "gzip": lambda file: _GZIP_FILE(fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0),
    "zstd": lambda file: pa.CompressedOutputStream(pa.PythonFile(Kept(file), "w"), "zstd"),
}
