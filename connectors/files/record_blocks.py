"""A file's bytes in blocks that end with a record: whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from onceflow.connectors.files.packing import DAMAGED, compression_of, unpacked
from onceflow.connectors.files.place import Place
from onceflow.runtime.errors import DataLossError

BLOCK_BYTES = 4 << 20
RECORD_BYTES_MAX = 64 << 20
"""A longer record is taken for a file that has none."""
_LOOK_BYTES = 1 << 16
_NEWLINE, _QUOTE = ord("\n"), ord('"')
Offsets = npt.NDArray[np.int32]


class UncompressedFile:
    """A file's content as it is, or unpacked; positions count unpacked bytes."""

    def __init__(self, file: BinaryIO, name: str, compression: str | None = None) -> None:
        """`compression` None: what the name ends with."""
        self._name = name
        self._compression = compression_of(name, compression)
        self._source = _Source(file)
        self._file: Any = file if self._compression is None else unpacked(self._source, self._compression)
        self._position = 0

    def seek(self, position: int) -> None:
        """Go forward to this byte. What is packed is unpacked up to there."""
        if self._compression is not None:
            while (left := position - self._position) > 0 and self.read(min(left, BLOCK_BYTES)):
                pass
        else:
            self._file.seek(position)
            self._position = position

    def read(self, size: int) -> bytes:
        try:
            content: bytes = self._file.read(size)
        except EOFError:
            raise DataLossError(
                f"{self._name} is cut off: its {self._compression} stream has no end"
            ) from None
        except DAMAGED as error:
            if self._compression is None:
                raise
            if self._source.failure is not None:
                raise self._source.failure from None
            raise DataLossError(f"{self._name} is damaged: {error}") from None
        self._position += len(content)
        return content


class _Source:
    """A packed file, which remembers whether it could not be read: that does not say that it is damaged."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.failure: OSError | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            self.failure = error
            raise

    def readinto(self, room: Any) -> int:
        content = self.read(len(room))
        room[: len(content)] = content
        return len(content)

    def seek(self, position: int, whence: int = 0) -> int:
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        """Whoever has opened the file does that."""


def blocks(
    file: UncompressedFile,
    position: int,
    name: str,
    cut: Callable[[bytes], int],
    block_bytes: int = BLOCK_BYTES,
    stop: int = 0,
) -> Iterator[tuple[int, bytes]]:
    """(where it begins, content) of one block after another, from this byte on. `cut` says where the last
    whole record of some bytes ends. What is left at the end of the file is a record, too. `stop`: the byte
    at which a record begins that is not read any more; 0: all are."""
    file.seek(position)
    rest = b""
    while content := file.read(min(block_bytes, stop - position - len(rest)) if stop else block_bytes):
        rest = rest + content if rest else content
        end = cut(rest)
        if end:
            yield position, rest[:end]
            position, rest = position + end, rest[end:]
        elif len(rest) > RECORD_BYTES_MAX:
            raise _no_end(name, position)
    if rest:
        yield position, rest


def _no_end(name: str, position: int) -> DataLossError:
    return DataLossError(
        f"{name}: there is no end of a record within {RECORD_BYTES_MAX >> 20} MiB from byte {position} on: "
        "is it what its name says?"
    )


def line_cuts(place: Place, path: str, piece_bytes: int) -> list[int]:
    """Bytes at which lines begin, about so far apart."""
    cuts: list[int] = []
    with place.open(path) as file:
        size = file.seek(0, 2)
        at = piece_bytes
        while at < size:
            file.seek(at - 1)
            begin = at - 1 + _line_length(file, path)
            if begin < size:
                cuts.append(begin)
            at = begin + piece_bytes
    return cuts


def _line_length(file: BinaryIO, path: str) -> int:
    """How many bytes there are up to the end of this line, or of the file."""
    length = 0
    while content := file.read(_LOOK_BYTES):
        if end := content.find(b"\n") + 1:
            return length + end
        length += len(content)
        if length > RECORD_BYTES_MAX:
            raise _no_end(path, length)
    return length


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
