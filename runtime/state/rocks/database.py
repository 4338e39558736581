"""Database: RocksDB under one table: rows by id, and times at which rows wake.

Scratch: made new, without a log, never read by another process. What has to survive is in checkpoints.

Rows lie under b"r" + id. A time lies under b"w" + the kind of time + the time + id, so the next one to come
is the first of its kind.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from onceflow.runtime.errors import Retryable
from onceflow.runtime.records import Int64s
from onceflow.runtime.state.rocks.row_ids import Identities
from onceflow.runtime.state.rocks.scratch import ScratchFolder

WRITE_ROWS = 1 << 13
"""How many rows are written at once."""
GET_ROWS = 256
"""How many rows are read at once: RocksDB keeps the blocks of all of them in memory meanwhile, also beyond
the bound of its cache."""
_CACHE_PARTS = 2
"""The write buffers may take one of so many parts of the cache."""
_WRITE_BUFFER_BYTES = 64 << 20
_BLOOM_BITS = 10
_ROW = b"r"
_BEHIND_ROWS = b"s"
_WAKE = b"w"
_TIME = struct.Struct(">BQ")
_SIGN = 1 << 63
_WAKE_KEY = np.dtype([("prefix", "u1"), ("kind", "u1"), ("time", ">u8"), ("id", ">u8", (2,))])


class SharedMemory:
    """What RocksDB keeps in memory for all tables of a slot: blocks, indexes, filters, write buffers."""

    def __init__(self, memory_bytes: int) -> None:
        self.cache = Cache(memory_bytes)
        self.write_buffer_bytes = min(_WRITE_BUFFER_BYTES, max(1 << 20, memory_bytes // _CACHE_PARTS // 2))
        self.write_buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            memory_bytes // _CACHE_PARTS, False, self.cache
        )


class Wake(NamedTuple):
    """A row that is to come back at a time."""

    time_ms: int
    row_id: bytes


class Database:
    """One table's. One thread, but for what `freeze` gives."""

    def __init__(self, memory: SharedMemory, folder: ScratchFolder) -> None:
        """The folder is the database's to close. Raises Retryable if it can't be used."""
        self._folder = folder
        self._is_closed = False
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]
        path = str(folder.path / "db")
        try:
            self._db = Rdict(path, _options(memory))
        except Exception as error:  # which has no type of its own
            folder.close()
            raise Retryable(f"RocksDB can't use {path}: {error}") from error

    def get(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """The content of each row; None: there is none. Quickest in the order of ids."""
        found: list[bytes | None] = []
        for first in range(0, len(ids), GET_ROWS):
            keys = [_ROW + row_id for row_id in ids[first : first + GET_ROWS]]
            found += self._db.get(keys)  # type: ignore[arg-type]
        return found

    def put(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Write these rows, ids and contents, in order."""
        batch = WriteBatch(raw_mode=True)
        for row_id, content in rows:
            batch.put(_ROW + row_id, content)
        self._write(batch)

    def delete(self, ids: Iterable[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for row_id in ids:
            batch.delete(_ROW + row_id)
        self._write(batch)

    def put_wakes(self, kind: int, times: Int64s, identities: Identities) -> None:
        """Remember when these rows wake."""
        batch = WriteBatch(raw_mode=True)
        for key in sorted(_wake_keys(kind, times, identities)):
            batch.put(key, b"")
        self._write(batch)

    def delete_wakes(self, kind: int, wakes: Iterable[Wake]) -> None:
        batch = WriteBatch(raw_mode=True)
        for wake in wakes:
            batch.delete(_wake_key(kind, wake))
        self._write(batch)

    def wakes(self, kind: int, from_ms: int) -> Iterator[Wake]:
        """Which rows wake, the earliest first. None is there for a time before `from_ms`: those that were
        deleted need not be passed again."""
        options = ReadOptions()
        options.set_iterate_upper_bound(_WAKE + bytes([kind + 1]))
        for key in self._db.keys(from_key=_WAKE + _TIME.pack(kind, from_ms + _SIGN), read_opt=options):
            assert isinstance(key, bytes)
            _, time = _TIME.unpack_from(key, 1)
            yield Wake(time - _SIGN, key[1 + _TIME.size :])

    def wake_times(self, kind: int, from_ms: int) -> Iterator[int]:
        """The times at which rows wake, each once, the earliest first: found by one search each, however many
        rows wake then. `from_ms`: as for `wakes`."""
        keys, begin = self._db.iter(ReadOptions()), _WAKE + bytes([kind])
        keys.seek(_WAKE + _TIME.pack(kind, from_ms + _SIGN))
        while keys.valid() and keys.key().startswith(begin):
            _, time = _TIME.unpack_from(keys.key(), 1)
            yield time - _SIGN
            keys.seek(_WAKE + _TIME.pack(kind, time + 1))

    def freeze(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows as they are now, in the order of their ids: id and content. Nothing is copied; for one
        thread, whichever. It ends early if the database is closed meanwhile."""
        options = ReadOptions()
        options.set_iterate_upper_bound(_BEHIND_ROWS)
        options.fill_cache(False)  # type: ignore[call-arg]  # what is read once
        options.set_readahead_size(1 << 20)
        # An iterator sees what there was when it was made. (A Snapshot of rocksdict 0.3 with options of one's
        # own does not.)
        frozen = self._db.items(from_key=_ROW, read_opt=options)
        return ((key[1:], content) for key, content in frozen)  # type: ignore[index, misc]

    def freeze_slice(self, first_id: bytes, last_id: bytes) -> FrozenSlice:
        """The rows from one id to another, as they are now; and single ones beside. As `freeze`."""
        options = ReadOptions()
        options.fill_cache(False)  # type: ignore[call-arg]  # what is read once
        return FrozenSlice(self._db.iter(options), first_id, last_id)

    def close(self) -> None:
        """Nothing is kept. A second time does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._db.close()
            self._folder.close()

    def _write(self, batch: WriteBatch) -> None:
        if not batch.is_empty():
            try:
                self._db.write(batch, self._write_options)
            except Exception as error:  # which has no type of its own
                raise Retryable(f"RocksDB can't write to {self._folder.path}: {error}") from error


class FrozenSlice:
    """See `Database.freeze_slice`. One thread, whichever."""

    def __init__(self, frozen: RdictIter, first_id: bytes, last_id: bytes) -> None:
        self._frozen = frozen
        self._first = _ROW + first_id
        self._last = _ROW + last_id

    def ids(self) -> Iterator[bytes]:
        frozen = self._frozen
        frozen.seek(self._first)
        while frozen.valid() and (key := frozen.key()) <= self._last:
            yield key[1:]
            frozen.next()

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        frozen = self._frozen
        frozen.seek(self._first)
        while frozen.valid() and (key := frozen.key()) <= self._last:
            yield key[1:], frozen.value()
            frozen.next()

    def of(self, ids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The rows of these ids, wherever they are, if they are there."""
        frozen = self._frozen
        for row_id in ids:
            frozen.seek(_ROW + row_id)
            if frozen.valid() and frozen.key() == _ROW + row_id:
                yield row_id, frozen.value()


def _wake_key(kind: int, wake: Wake) -> bytes:
    return _WAKE + _TIME.pack(kind, wake.time_ms + _SIGN) + wake.row_id


def _wake_keys(kind: int, times: Int64s, identities: Identities) -> list[bytes]:
    """`_wake_key` of each."""
    keys = np.empty(len(times), _WAKE_KEY)
    keys["prefix"], keys["kind"] = ord(_WAKE), kind
    keys["time"] = times.view(np.uint64) ^ np.uint64(_SIGN)
    keys["id"] = identities
    as_bytes: list[bytes] = keys.view(f"V{_WAKE_KEY.itemsize}").tolist()
    return as_bytes


def _options(memory: SharedMemory) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(memory.cache)
    blocks.set_cache_index_and_filter_blocks(True)  # else they are outside of the bound
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(memory.write_buffer_bytes)
    options.set_max_write_buffer_number(4)
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(0.05)
    # A block is read for one row of it: to decompress it costs as much again, and files are scratch.
    options.set_compression_type(DBCompressionType.none())
    options.set_max_background_jobs(2)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    return options
