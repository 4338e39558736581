"""A file's bytes in blocks that end with a record: whole lines."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from isal import igzip, isal_zlib

from onceflow.runtime.errors import DataLossError

BLOCK_BYTES = 4 << 20
RECORD_BYTES_MAX = 64 << 20
"""A longer record is taken for a file that has none."""
_NEWLINE, _QUOTE = ord("\n"), ord('"')
_DAMAGED: Any = (gzip.BadGzipFile, isal_zlib.IsalError)
Offsets = npt.NDArray[np.int32]


class UncompressedFile:
    """A file's content as it is, or unpacked from gzip; positions count unpacked bytes."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._is_packed = name.endswith(".gz")
        unpack: Any = igzip.IGzipFile
        self._file: BinaryIO = unpack(fileobj=file) if self._is_packed else file
        self._position = 0

    def seek(self, position: int) -> None:
        """Go forward to this byte. What is packed is unpacked up to there."""
        if self._is_packed:
            while (left := position - self._position) > 0 and self.read(min(left, BLOCK_BYTES)):
                pass
        else:
            self._file.seek(position)
            self._position = position

    def read(self, size: int) -> bytes:
        try:
            content = self._file.read(size)
        except EOFError:
            raise DataLossError(f"{self._name} is cut off: its gzip stream has no end") from None
        except _DAMAGED as error:
            raise DataLossError(f"{self._name} is damaged: {error}") from None
        self._position += len(content)
        return content


def blocks(
    file: UncompressedFile,
    position: int,
    name: str,
    cut: Callable[[bytes], int],
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[int, bytes]]:
    """(where it begins, content) of one block after another, from this byte on. `cut` says where the last
    whole record of some bytes ends. What is left at the end of the file is a record, too."""
    file.seek(position)
    rest = b""
    while content := file.read(block_bytes):
        rest = rest + content if rest else content
        end = cut(rest)
        if end:
            yield position, rest[:end]
            position, rest = position + end, rest[end:]
        elif len(rest) > RECORD_BYTES_MAX:
            raise DataLossError(
                f"{name}: there is no end of a record within {RECORD_BYTES_MAX >> 20} MiB from byte "
                f"{position} on: is it what its name says?"
            )
    if rest:
        yield position, rest


def lines_end(content: bytes) -> int:
    """Where the last whole line ends; 0: there is none."""
    return content.rfind(b"\n") + 1


def unquoted_lines_end(content: bytes) -> int:
    """Where the last line ends that is whole, where a line end inside of quotes is part of a value."""
    if b'"' not in content:
        return lines_end(content)
    ends = _unquoted_ends(content)
    return int(ends[-1]) if len(ends) else 0


def line_starts(content: bytes) -> Offsets:
    """Where each line begins; and at last where the last one ends."""
    return _starts(np.flatnonzero(np.frombuffer(content, np.uint8) == _NEWLINE) + 1, len(content))


def unquoted_line_starts(content: bytes) -> Offsets:
    """The same, where a line end inside of quotes is part of a value."""
    return _starts(_unquoted_ends(content), len(content))


def _unquoted_ends(content: bytes) -> npt.NDArray[np.int64]:
    letters = np.frombuffer(content, np.uint8)
    is_outside = np.cumsum(letters == _QUOTE) % 2 == 0
    return np.flatnonzero((letters == _NEWLINE) & is_outside) + 1


def _starts(ends: npt.NDArray[np.int64], size: int) -> Offsets:
    if not len(ends) or ends[-1] < size:
        ends = np.append(ends, size)
    return np.append(0, ends).astype(np.int32)
