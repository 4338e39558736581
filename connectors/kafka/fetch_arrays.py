"""ArrayBatch: a MessageBatch read by NumPy and Arrow, a column at a time, without kernels.

The messages' structs lie all over the heap. An array over everything from the lowest address to the
highest is never read as a whole: only at the places of the structs, which are there. In the same way an
Arrow array over librdkafka's buffers has the values as its even entries and what lies between them as
the odd ones, and only the even ones are copied out.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.spans import BINARY_BYTES_MAX, between
from onceflow.connectors.kafka.fetch_batch import Survey, headers_of
from onceflow.connectors.kafka.librdkafka_library import CMessage, Library
from onceflow.runtime.records import Int64s

_WORD = 8
_WORDS = np.dtype(np.int64).str
_GAP_MAX = 1 << 10
"""Bytes between two values that Arrow still takes in one go: it makes room for the gaps, too."""
_RUN_MIN = 48
"""Values that must lie in a row, on average, for Arrow to be quicker than one value at a time."""


class ArrayBatch:
    """See MessageBatch."""

    def __init__(self, library: Library, room: int, binary_bytes_max: int = BINARY_BYTES_MAX) -> None:
        self.addresses = np.zeros(room, np.int64)
        self._library = library
        self._binary_bytes_max = binary_bytes_max
        self._records = 0
        self._words: Int64s = np.zeros(0, np.int64)
        self._first: Int64s = np.zeros(0, np.int64)
        self._is_bulk = library.destroys_in_bulk()

    def survey(self, count: int) -> Survey:
        self._look_at(count)
        errors = self._at(CMessage.err.offset).astype(np.int32) != 0
        failed = np.zeros((0, 2), np.int64)
        if errors.any():
            rows = np.flatnonzero(errors)
            failed = np.stack((self.addresses[rows], rows - np.arange(len(rows))), axis=1)
            records = np.flatnonzero(~errors)
            self.addresses[: len(records)] = self.addresses[records]
            self._look_at(len(records))
        self._records = len(self._first)
        topics, partitions = (
            self._at(CMessage.rkt.offset),
            self._at(CMessage.partition.offset).astype(np.int32),
        )
        is_other = (topics[1:] != topics[:-1]) | (partitions[1:] != partitions[:-1])
        firsts = np.flatnonzero(np.append(True, is_other))[: self._records]
        runs: Int64s = np.stack((firsts, topics[firsts], partitions[firsts].astype(np.int64)), axis=1)
        size = int(self._at(CMessage.len.offset).sum() + self._at(CMessage.key_len.offset).sum())
        return Survey(self._records, runs, failed, size)

    def gather(self, field: int) -> pa.Array:
        starts, lengths = self._at(field), self._at(field + _WORD)
        if not len(starts):
            return pa.array([], pa.binary())
        is_null = starts == 0
        lengths = np.where(is_null, 0, lengths)
        filled = np.flatnonzero(lengths)
        is_all = len(filled) == len(starts)
        if is_all:
            found = _copies(starts, lengths)
        else:
            found = _copies(starts[filled], lengths[filled]) if len(filled) else pa.array([b""])
        _, ends, data = found.buffers()
        width = np.int64 if found.type == pa.large_binary() else np.int32
        total = int(lengths.sum())
        fits = total <= self._binary_bytes_max
        if not is_all or fits != (width == np.int32):
            bounds = np.zeros(len(starts) + 1, np.int32 if fits else np.int64)
            np.cumsum(lengths, out=bounds[1:])
            ends = pa.py_buffer(bounds)
        nulls = int(np.count_nonzero(is_null))
        valid = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if nulls else None
        arrow = pa.binary() if fits else pa.large_binary()
        return pa.Array.from_buffers(arrow, len(starts), [valid, ends, data], nulls)

    def offsets(self) -> Int64s:
        return self._at(CMessage.offset.offset)

    def timestamps(self) -> tuple[Int64s, npt.NDArray[np.int8]]:
        kinds = np.zeros(self._records, np.int32)
        first = kinds.ctypes.data
        places = range(first, first + kinds.nbytes, kinds.itemsize)
        addresses = self.addresses[: self._records].tolist()
        times = np.fromiter(
            map(self._library.rd_kafka_message_timestamp, addresses, places), np.int64, self._records
        )
        return times, kinds.astype(np.int8)

    def headers(self) -> pa.Array:
        """The first header of every record that has one, then the second, and so on."""
        lists = np.zeros(self._records, np.int64)
        find, get = self._library.rd_kafka_message_headers, self._library.rd_kafka_header_get_all
        answers = map(find, self.addresses[: self._records].tolist(), _places(lists))
        rows = np.flatnonzero(np.fromiter(answers, np.int32, self._records) == 0)
        found_rows, found_places = [rows[:0]], [np.zeros((0, 3), np.int64)]
        for number in itertools.count():
            if not len(rows):
                break
            places = np.zeros((len(rows), 3), np.int64)  # name, value, how long that is
            codes = map(get, lists[rows].tolist(), itertools.repeat(number), *map(_places, places.T))
            is_there = np.fromiter(codes, np.int32, len(rows)) == 0
            rows, places = rows[is_there], places[is_there]
            found_rows.append(rows)
            found_places.append(places)
        row = np.concatenate(found_rows)
        names, values, sizes = np.concatenate(found_places)[np.argsort(row, kind="stable")].T.tolist()
        contents = (ctypes.string_at(v, size) if v else None for v, size in zip(values, sizes, strict=True))
        return headers_of(
            np.append(0, np.cumsum(np.bincount(row, minlength=self._records))).astype(np.int32),
            pa.array(list(map(ctypes.string_at, names)), pa.binary()),
            pa.array(list(contents), pa.binary()),
        )

    def release(self) -> None:
        addresses, self._records = self.addresses[: self._records], 0
        self._words = self._first = np.zeros(0, np.int64)
        if self._is_bulk:
            self._library.destroy_messages(addresses)
        else:
            destroy = self._library.rd_kafka_message_destroy
            collections.deque(map(destroy, addresses.tolist()), maxlen=0)

    def _look_at(self, count: int) -> None:
        """Has `_at` read the first `count` messages."""
        addresses = self.addresses[:count]
        if not count:
            self._words = self._first = np.zeros(0, np.int64)
            return
        lowest, highest = int(addresses.min()), int(addresses.max())
        size = highest - lowest + ctypes.sizeof(CMessage)
        memory = {"version": 3, "data": (lowest, True), "shape": (size // _WORD,), "typestr": _WORDS}
        self._words = np.asarray(SimpleNamespace(__array_interface__=memory))
        self._first = (addresses - lowest) // _WORD

    def _at(self, field: int) -> Int64s:
        """The word that begins so many bytes into each message."""
        return self._words.take(self._first + field // _WORD)


def _copies(starts: Int64s, lengths: Int64s) -> pa.Array:
    """What lies at these addresses, each of at least one byte; binary or large_binary."""
    ends = starts + lengths
    gaps = starts[1:] - ends[:-1]
    breaks = (np.flatnonzero((gaps < 0) | (gaps > _GAP_MAX)) + 1).tolist()
    if _RUN_MIN * len(breaks) >= len(starts):
        arrow = pa.binary() if int(lengths.sum()) <= BINARY_BYTES_MAX else pa.large_binary()
        return pa.array(list(map(ctypes.string_at, starts.tolist(), lengths.tolist())), arrow)
    firsts, lasts = [0, *breaks], [*breaks, len(starts)]
    extent = sum(int(ends[last - 1] - starts[first]) for first, last in zip(firsts, lasts, strict=True))
    arrow = pa.binary() if extent <= BINARY_BYTES_MAX else pa.large_binary()
    return pa.concat_arrays(
        [
            _copied_run(starts[first:last], ends[first:last], arrow)
            for first, last in zip(firsts, lasts, strict=True)
        ]
    )


def _copied_run(starts: Int64s, ends: Int64s, arrow: pa.DataType) -> pa.Array:
    """Of values one behind the other, with small gaps."""
    base = int(starts[0])
    memory = pa.foreign_buffer(base, int(ends[-1]) - base)
    return between(memory, starts - base, ends - base, arrow)


def _places(words: Int64s) -> range:
    """The addresses of its entries."""
    first, step = words.ctypes.data, words.strides[0] or _WORD
    return range(first, first + step * len(words), step)
