"""Checked files: read many at once, in bounded memory, fetched once; every damage named as of one by one."""

from __future__ import annotations

import errno
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from isal import isal_zlib

from onceflow.runtime.checkpoint.checked_files import CheckedFiles, Wanted
from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import TableFile
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.store import CheckpointStore, DistantStore
from onceflow.runtime.errors import CorruptCheckpointError, Retryable
from tests.unit.environment.test_spool import open_spools

PIECE = 64
DEADLINE_S = 120.0


class Distant(MemoryStore):
    """A DistantStore that counts what it is asked for. `meet`: so many ask at the same time, or nobody gets
    an answer."""

    def __init__(self, meet: int = 1) -> None:
        super().__init__()
        self.asked: Counter[tuple[str, int]] = Counter()
        """How often each byte was asked for."""
        self.opened = 0
        self._meeting = threading.Barrier(meet)

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        self._meeting.wait(DEADLINE_S)
        content = self.read(path)[offset : offset + size]
        self.asked.update((path, offset + n) for n in range(len(content)))
        return content

    def open(self, path: str) -> BinaryIO:
        self.opened += 1
        return super().open(path)

    def read_all(self, paths: Iterable[str]) -> Mapping[str, bytes]:
        return {path: self.read(path) for path in paths}

    def abandon_uploads(self, is_left: object) -> None:
        """There are none."""


def content_of(n: int, size: int) -> bytes:
    return bytes((n * 31 + k * 7) % 251 for k in range(size))


def stored(store: CheckpointStore, *sizes: int, path: str = "state/{}", offset: int = 5) -> list[Wanted]:
    """Files with one table of each of these sizes, which begins behind other bytes and ends before some."""
    wanted = []
    for n, size in enumerate(sizes):
        content, name = content_of(n, size), path.format(n)
        with store.create_file(name) as file:
            file.write(b"x" * offset + content + b"y" * 9)
        table = TableFile("keys", name, offset, size, f"crc32:{isal_zlib.crc32(content):08x}", ())
        wanted.append(Wanted(table, f"{store.describe(name)} (state 'keys')"))
    return wanted


def replace(store: MemoryStore, path: str, content: bytes) -> None:
    store.delete([path])
    store.create(path, content)


def checked(
    store: CheckpointStore, said: list[str] | None = None, at_once: int = 4, folder: Path | None = None
) -> CheckedFiles:
    return CheckedFiles(store, [].append if said is None else said.append, at_once, PIECE, folder)


SIZES = (0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3)


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("kind", [MemoryStore, Distant])
def test_tables_of_all_sizes_are_opened_at_their_first_byte(kind: type[MemoryStore], at_once: int) -> None:
    store = kind()
    assert isinstance(store, DistantStore) == (kind is Distant)
    opens = checked(store, at_once=at_once).opened(stored(store, *SIZES))
    for n, (size, opened) in enumerate(zip(SIZES, opens, strict=True)):
        for _ in range(2):  # each call from the beginning
            with opened() as file:
                assert file.read(size) == content_of(n, size)


def test_pieces_of_many_files_are_on_their_way_at_once() -> None:
    """Four ask at the same time, of one large file and of four small ones."""
    store = Distant(meet=4)
    wanted = stored(store, 4 * PIECE, PIECE, PIECE, PIECE, PIECE)
    assert len(checked(store).opened(wanted)) == 5


def test_each_byte_is_fetched_once_however_often_it_is_read() -> None:
    store = Distant()
    wanted = stored(store, *SIZES)
    opens = checked(store).opened(wanted)
    for opened in opens * 2:
        opened().read()
    assert set(store.asked.values()) == {1}
    assert len(store.asked) == sum(SIZES), "and nothing beside the tables"
    assert store.opened == 0


def test_what_was_fetched_is_gone_when_it_was_taken(tmp_path: Path) -> None:
    store = Distant()
    opens = checked(store, folder=tmp_path).opened(stored(store, *SIZES))
    assert list(tmp_path.iterdir()) == []
    assert open_spools(tmp_path) == 1
    del opens[0]
    assert open_spools(tmp_path) == 1
    opens.clear()
    assert open_spools(tmp_path) == 0


def test_it_is_gone_when_the_restore_failed(tmp_path: Path) -> None:
    store = Distant()
    wanted = stored(store, *SIZES)
    store.delete([wanted[3].table.path])
    with pytest.raises(CorruptCheckpointError) as failed:
        checked(store, folder=tmp_path).opened(wanted)
    failed.value.__traceback__ = None
    del failed
    assert open_spools(tmp_path) == 0


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("kind", [MemoryStore, Distant])
def test_the_first_file_that_is_damaged_is_named(kind: type[MemoryStore], at_once: int) -> None:
    store = kind()
    wanted = stored(store, 3 * PIECE, 3 * PIECE, 3 * PIECE, PIECE)
    first, second, third = (each.table.path for each in wanted[1:])
    damages = [
        (third, None, "is gone"),
        (
            second,
            store.read(second)[: 5 + PIECE + 2],
            f"ends after {5 + PIECE + 2} bytes, not {5 + 3 * PIECE}",
        ),
        (first, store.read(first)[:70] + b"?" + store.read(first)[71:], "was altered: its checksum is not"),
    ]
    for path, content, said in damages:
        store.delete([path])
        if content is not None:
            store.create(path, content)
        with pytest.raises(CorruptCheckpointError) as failed:
            checked(store, at_once=at_once).opened(wanted)
        assert path in str(failed.value)
        assert f"(state 'keys') {said}" in str(failed.value)


@pytest.mark.parametrize("kind", [MemoryStore, Distant])
def test_files_that_are_damaged_are_read_from_their_copies_and_said_in_order(kind: type[MemoryStore]) -> None:
    store, said = kind(), list[str]()
    wanted = stored(store, 3 * PIECE, PIECE, 2 * PIECE, 7)
    stored(store, 3 * PIECE, PIECE, 2 * PIECE, 7, path="copies/state/{}")
    assert copy_path(wanted[0].table.path) == "copies/state/0"
    store.delete([wanted[0].table.path])
    replace(store, wanted[2].table.path, store.read(wanted[2].table.path)[:20])
    opens = checked(store, said).opened(wanted)
    read = [opened().read(each.table.size) for opened, each in zip(opens, wanted, strict=True)]
    assert read == [content_of(n, each.table.size) for n, each in enumerate(wanted)]
    assert len(said) == 2
    assert said[0] == f"{wanted[0].where} is gone; read from its copy"
    assert said[1].startswith(f"{wanted[2].where} ends after 20 bytes")


class Away(Distant):
    """One file can't be read."""

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        if path == "state/1":
            raise ConnectionResetError("reset by peer")
        return super().read_range(path, offset, size)


def test_what_the_store_says_is_passed_on() -> None:
    store = Away()
    wanted = stored(store, *SIZES)
    with pytest.raises(ConnectionResetError, match="reset by peer"):
        checked(store).opened(wanted)


class Forbidden(MemoryStore):
    """Some files may not be read by this user."""

    forbidden: tuple[str, ...] = ()

    def open(self, path: str) -> BinaryIO:
        if path in self.forbidden:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().open(path)


def test_what_may_not_be_read_is_read_from_its_copy_or_says_what_it_was_for() -> None:
    store, said = Forbidden(), list[str]()
    wanted = stored(store, 10)
    stored(store, 10, path="copies/state/{}")
    path = wanted[0].table.path
    store.forbidden = (path,)
    (opened,) = checked(store, said).opened(wanted)
    assert opened().read(10) == content_of(0, 10)
    [problem] = said
    assert problem.startswith(f"{wanted[0].where} can't be read: ")
    store.forbidden = (path, copy_path(path))
    with pytest.raises(PermissionError) as failed:
        checked(store).opened(wanted)
    assert str(failed.value) == f"[Errno 13] {wanted[0].where} can't be read: Permission denied"


def test_no_room_for_what_is_fetched_is_no_damage(tmp_path: Path) -> None:
    store = Distant()
    wanted = stored(store, *SIZES)
    with pytest.raises(Retryable, match="set TMPDIR"):
        checked(store, folder=tmp_path / "nowhere").opened(wanted)


def test_a_file_that_goes_between_its_check_and_its_reading_is_named(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    (opened,) = checked(store).opened(stored(store, 10))
    (tmp_path / "state" / "0").unlink()
    with pytest.raises(CorruptCheckpointError, match=r"state/0.* is gone"):
        opened()


class Long(Distant):
    """Makes up what it is asked for, so that nothing of it is in memory before."""

    largest = 0

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        return bytes(size)


def test_what_is_in_memory_are_the_pieces_that_are_on_their_way(tmp_path: Path) -> None:
    piece, size, at_once, crc = 1 << 16, 1 << 26, 4, 0
    for _ in range(size // piece):
        crc = isal_zlib.crc32(bytes(piece), crc)
    wanted = Wanted(TableFile("keys", "state/0", 0, size, f"crc32:{crc:08x}", ()), "it")
    store = Long()
    tracemalloc.start()
    try:
        (opened,) = CheckedFiles(store, [].append, at_once, piece, tmp_path).opened([wanted])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert store.largest == piece
    # Beside the pieces, what is noted of each: some kilobytes.
    assert peak < (at_once + 2) * piece + (size // piece) * 4_000, peak
    with opened() as file:
        assert file.read(3) == bytes(3)
