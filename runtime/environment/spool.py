"""Spool: what has no room in memory or came over a network, on this machine's disk until it is taken."""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO, cast

from onceflow.runtime.errors import Retryable

READ_BYTES = 1 << 18


class Spool:
    """A temporary file without a name, in the folder for temporary files (`TMPDIR`): it is gone when nobody
    holds it or a file that was opened in it, and with the process, however that ends. Any threads may write
    and read different places of it."""

    def __init__(self, what: str, folder: Path | None = None) -> None:
        """`what` is kept in it, for messages; `folder`: another one than that for temporary files. Raises
        Retryable if there is no room."""
        self._what = what
        self._folder = folder
        try:
            with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
                self._fd = os.dup(file.fileno())
        except OSError as error:
            raise self._no_room(error) from error
        weakref.finalize(self, os.close, self._fd)

    def write(self, place: int, content: bytes) -> None:
        """Write this at a place of the file. Raises Retryable if there is no room."""
        left = memoryview(content)
        try:
            while left:
                written = os.pwrite(self._fd, left, place)
                place, left = place + written, left[written:]
        except OSError as error:
            raise self._no_room(error) from error

    def open(self, place: int, size: int) -> BinaryIO:
        """What was written at [place, place + size), as a file."""
        return cast(BinaryIO, io.BufferedReader(_Part(self, place, size), READ_BYTES))

    def read_into(self, buffer: memoryview, place: int) -> int:
        """Fill the buffer from a place on; returns how many bytes there were."""
        return os.preadv(self._fd, [buffer], place)

    def _no_room(self, error: OSError) -> Retryable:
        where = self._folder or tempfile.gettempdir()
        return Retryable(
            f"there is no room in {where} for {self._what}: {error}; "
            "give it room, or set TMPDIR to a folder that has some"
        )


class _Part(io.RawIOBase):
    """A part of a spool, from its beginning to its end."""

    def __init__(self, spool: Spool, place: int, size: int) -> None:
        super().__init__()
        self._spool = spool
        self._place = place
        self._end = place + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        read = self._spool.read_into(memoryview(buffer)[: self._end - self._place], self._place)
        self._place += read
        return read
