"""State files, read through before anybody takes a row of them: many at once, and fetched once.

What is read is cut into pieces, of which several are on their way at once, and a table's checksum is put
together from those of its pieces. So a restore of many files, or of a large one, waits for as many answers of
a network or disk at a time; never more than these pieces are in memory.

From a store behind a network the pieces go to a spool on this machine's disk, and the rows are read from
there. Files of this machine are opened once more: their second reading comes from the page cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib  # zlib's numbers, at four times its speed

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.manifest import TableFile
from onceflow.runtime.checkpoint.store import CheckpointStore, DistantStore
from onceflow.runtime.environment.spool import Spool
from onceflow.runtime.errors import CorruptCheckpointError

AT_ONCE = 8
"""How many pieces are read at once."""
PIECE_BYTES = 4 << 20
CHECK_BYTES = 1 << 17
"""How much of a piece of a file of this machine is in memory while it is checked, in bytes."""

Open = Callable[[], BinaryIO]
"""Opens a table's file at the table's first byte. Raises CorruptCheckpointError if the file is gone."""
Read = tuple[int, int]
"""How many bytes there were, and their checksum."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table that is to be read. `where`: the path and the state, for messages."""

    table: TableFile
    where: str


class CheckedFiles:
    """Reads tables through, and opens what was read. Thread-safe."""

    def __init__(
        self,
        store: CheckpointStore,
        on_healed: Callable[[str], None],
        at_once: int = AT_ONCE,
        piece_bytes: int = PIECE_BYTES,
        folder: Path | None = None,
    ) -> None:
        """`on_healed(problem)`: a damaged file was read from its copy; on the thread that asks. `at_once`: so
        many pieces of `piece_bytes` are read at once; 1: by the thread that asks, one after the other.
        `folder`: see Spool."""
        self._store = store
        self._on_healed = on_healed
        self._at_once = at_once
        self._piece_bytes = piece_bytes
        self._folder = folder

    def opened(self, wanted: Sequence[Wanted]) -> list[Open]:
        """Check all these tables; what opens each of them.

        Raises CorruptCheckpointError of the first that is gone, short or altered and has no copy that is
        whole; OSError; Retryable if there is no room for what is fetched.
        """
        spools = isinstance(self._store, DistantStore) and len(wanted) > 0
        spool = Spool("the state that is read from the checkpoint folder", self._folder) if spools else None
        places = itertools.accumulate((each.table.size for each in wanted), initial=0)
        checks = [
            _Check(self._store, each, place, spool) for each, place in zip(wanted, places, strict=False)
        ]
        pieces = [list(_cut(each.table.size, self._piece_bytes)) for each in wanted]
        if self._at_once == 1 or sum(map(len, pieces)) <= 1 or not self._is_much(wanted):
            each_read = [map(check.read, of_table) for check, of_table in zip(checks, pieces, strict=True)]
            return [self._whole(check, read) for check, read in zip(checks, each_read, strict=True)]
        pool = ThreadPoolExecutor(self._at_once, "onceflow-restore")
        try:
            # All are begun before the first is waited for.
            on_their_way = [pool.map(check.read, cut) for check, cut in zip(checks, pieces, strict=True)]
            return [self._whole(check, read) for check, read in zip(checks, on_their_way, strict=True)]
        finally:
            pool.shutdown(cancel_futures=True)

    def _is_much(self, wanted: Sequence[Wanted]) -> bool:
        """Whether it is worth threads."""
        is_distant = isinstance(self._store, DistantStore)
        return is_distant or sum(each.table.size for each in wanted) > self._piece_bytes

    def _whole(self, check: _Check, read: Iterable[Read]) -> Open:
        """What opens the file, or its copy if only that is whole."""
        where = check.wanted.where
        try:
            return check.opened(read)
        except (CorruptCheckpointError, OSError) as error:
            is_known = isinstance(error, CorruptCheckpointError)
            problem = str(error) if is_known else f"{where} can't be read: {error}"
            copy = check.of_copy()
            try:
                whole = copy.opened(map(copy.read, _cut(copy.wanted.table.size, self._piece_bytes)))
            except (CorruptCheckpointError, OSError):
                if isinstance(error, CorruptCheckpointError) or error.errno is None:
                    raise error from None
                # Of the same kind, which its number says.
                raise OSError(error.errno, f"{where} can't be read: {error.strerror}") from None
        self._on_healed(f"{problem}; read from its copy")
        return whole


def _cut(size: int, piece_bytes: int) -> Iterator[range]:
    """The bytes of a table in pieces; at least one, so that a file is opened in any case."""
    for first in range(0, max(1, size), piece_bytes):
        yield range(first, min(first + piece_bytes, size))


class _Check:
    """One table on its way: its pieces are read on any thread, and then compared with its manifest."""

    def __init__(
        self, store: CheckpointStore, wanted: Wanted, place: int, spool: Spool | None, path: str | None = None
    ) -> None:
        """`place`: where its bytes go in the spool. `path`: of its copy."""
        self.wanted = wanted
        self._store = store
        self._place = place
        self._spool = spool
        self._path = wanted.table.path if path is None else path

    def of_copy(self) -> _Check:
        path = copy_path(self.wanted.table.path)
        return _Check(self._store, self.wanted, self._place, self._spool, path)

    def read(self, piece: range) -> Read:
        """Read a piece of the table's bytes. Raises OSError; Retryable if there is no room for it."""
        first = self.wanted.table.offset + piece.start
        if self._spool is not None:
            assert isinstance(self._store, DistantStore)
            content = self._store.read_range(self._path, first, len(piece))
            self._spool.write(self._place + piece.start, content)
            return len(content), isal_zlib.crc32(content)
        size = crc = 0
        with self._store.open(self._path) as file:
            file.seek(first)
            while content := file.read(min(CHECK_BYTES, len(piece) - size)):
                size, crc = size + len(content), isal_zlib.crc32(content, crc)
        return size, crc

    def opened(self, read: Iterable[Read]) -> Open:
        """What opens the table whose pieces were read, in order. Raises CorruptCheckpointError if they are
        not all there, or are not what was written; OSError."""
        size = crc = 0
        try:
            for piece_size, piece_crc in read:
                size, crc = size + piece_size, isal_zlib.crc32_combine(crc, piece_crc, piece_size)
        except FileNotFoundError:
            raise CorruptCheckpointError(f"{self.wanted.where} is gone") from None
        check_content(self.wanted, size, crc)
        if self._spool is not None:
            return partial(self._spool.open, self._place, size)
        return self._open

    def _open(self) -> BinaryIO:
        try:
            file = self._store.open(self._path)
        except FileNotFoundError:
            raise CorruptCheckpointError(f"{self.wanted.where} is gone") from None
        file.seek(self.wanted.table.offset)
        return file


def check_content(wanted: Wanted, size: int, crc: int) -> None:
    """Raises CorruptCheckpointError if this is not what was written."""
    table = wanted.table
    if size != table.size:
        raise CorruptCheckpointError(
            f"{wanted.where} ends after {table.offset + size} bytes, not {table.offset + table.size}"
        )
    if shown_checksum(crc) != table.checksum:
        raise CorruptCheckpointError(f"{wanted.where} was altered: its checksum is not {table.checksum}")


def shown_checksum(crc: int) -> str:
    """A checksum finds what a disk or a person did to a file; it is no protection against an attacker."""
    return f"crc32:{crc:08x}"
