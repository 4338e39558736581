"""Columns: typed arrays that grow, rows of Arrow that are only appended, and the bits of an Arrow array."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Mask
from onceflow.runtime.state.rows import take_rows

_MERGE_MAX_BYTES = 256 << 20
_MERGE_PIECES = 16
_TOP_LEVEL = 1 << 30
_GROW_MIN = 1024
_TOUCH_AHEAD = 4096
_PAGE_BYTES = 4096
DECIMAL_WORDS = np.dtype([("low", np.uint64), ("high", np.int64)])
"""How a decimal of 128 bits lies in memory: high * 2^64 + low, without the point."""
_REFERENCES_OF_NOBODY = 2
"""The references to an array that only its column has: that one, and the argument of the question. A view is
one more."""


def null_mask(array: pa.Array) -> Mask | None:
    """True where the value is null; None if none is."""
    if not array.null_count:
        return None
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False))


def bits_of(array: pa.Array, dtype: np.dtype[Any] | None = None) -> npt.NDArray[Any]:
    """The values of a fixed-width array as they lie in memory, without copying; anything where null."""
    dtype = numpy_dtype(array.type) if dtype is None else dtype
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype.base if dtype.subdtype else dtype).reshape(-1, *dtype.shape)[
        array.offset : array.offset + len(array)
    ]


def numpy_dtype(arrow: pa.DataType) -> np.dtype[Any]:
    """How a fixed-width Arrow value lies in memory; dates, times and timestamps as integers."""
    t = pa.types
    if t.is_integer(arrow) or t.is_floating(arrow):
        word: type = arrow.to_pandas_dtype()
        return np.dtype(word)
    if t.is_decimal128(arrow):
        return DECIMAL_WORDS
    assert arrow.bit_width in (32, 64), f"{arrow} has no numpy type"
    return np.dtype(np.int32 if arrow.bit_width == 32 else np.int64)


def is_temporal(arrow: pa.DataType) -> bool:
    """Dates, times, timestamps and durations: integers underneath."""
    t = pa.types
    return bool(t.is_date(arrow) or t.is_time(arrow) or t.is_timestamp(arrow) or t.is_duration(arrow))


def is_word(arrow: pa.DataType) -> bool:
    """Fixed-width values of at most 64 bits: numbers, booleans, dates and times."""
    t = pa.types
    return bool(t.is_integer(arrow) or t.is_floating(arrow) or t.is_boolean(arrow) or is_temporal(arrow))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as a single batch."""
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    assert len(batches) == 1, "more than 2 GiB of keys in one subtask: raise the parallelism"
    return batches[0]


class FrozenColumn:
    """The places of a column as they were. Any thread; the memory is the column's again once it is gone."""

    __slots__ = ("__weakref__", "_values")

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._values = values

    def take(self, rows: Indices) -> npt.NDArray[Any]:
        """A copy of these places: views would outlive this object, and change."""
        return self._values.take(rows)


class _Copy:
    """Memory for the places of a column as they were at a barrier, used again and again."""

    def __init__(self, memory: npt.NDArray[Any]) -> None:
        self._memory = memory
        self._touched = 0
        """How many places, all that were ever used among them, lie in memory that is there."""
        self._frozen: weakref.ref[FrozenColumn] | None = None
        """What lies here, as long as somebody needs it."""

    @property
    def is_free(self) -> bool:
        return self._frozen is None or self._frozen() is None

    def of(self, values: npt.NDArray[Any]) -> FrozenColumn:
        copy = self._memory[: len(values)]
        np.copyto(copy, values)
        self._touched = max(self._touched, len(values))
        frozen = FrozenColumn(copy)
        self._frozen = weakref.ref(frozen)
        return frozen

    def touch(self, places: int) -> None:
        """Have memory for so many, and a piece ahead. Writes to none that was ever used."""
        if places > self._touched:
            until = min(len(self._memory), places + _TOUCH_AHEAD)
            self._memory[self._touched : until : max(1, _PAGE_BYTES // self._memory.strides[0])] = 0
            self._touched = until


class GrowableColumn:
    """A numpy array that grows; new places hold `fill`."""

    def __init__(self, dtype: npt.DTypeLike, fill: Any = 0, is_overwritten: bool = False) -> None:
        """`is_overwritten`: who grows it writes to each new place, so that these may hold anything."""
        self._dtype = np.dtype(dtype)
        self._is_overwritten = is_overwritten
        self._fill = fill
        self._is_zero = isinstance(fill, int) and not fill
        self._size = 0
        self._used_before = 0
        """How many places were in use since their memory was new, and may hold anything."""
        self.values = self._allocate(_GROW_MIN)
        """All places, also those not in use yet; replaced when the column grows."""

    def __len__(self) -> int:
        return self._size

    def grow(self, size: int) -> None:
        """Have at least this many places in use."""
        if size <= self._size:
            return
        self._have(size)
        if not self._is_overwritten:
            # Not all at once when they were left: here they are about to be used, and stay in the cache.
            self.values[self._size : min(size, self._used_before)] = self._fill
        self._size = size

    def reserve(self, places: int) -> None:
        """Have at least this many places, without any more being in use."""
        self._have(places)

    def used(self) -> npt.NDArray[Any]:
        """A view of the places in use."""
        return self.values[: self._size]

    def refill(self, places: Indices) -> None:
        """Make these places, which are in use, what new ones are."""
        self.values[places] = self._fill

    def keep(self, rows: Indices) -> None:
        """Keep these places only, in this order. Views handed out before stay as they are."""
        kept = self.values.take(rows, axis=0)
        self.clear(len(rows))
        self.values[: len(rows)] = kept
        self._size = len(rows)

    def clear(self, kept: int) -> None:
        """Have no places in use; so many will be at once. Views handed out before stay as they are."""
        capacity = len(self.values)
        if capacity > max(_GROW_MIN, 16 * kept):
            capacity //= 2  # little by little: the next window is likely to need what this one did
        if capacity < len(self.values) or sys.getrefcount(self.values) > _REFERENCES_OF_NOBODY:
            self.values = self._allocate(capacity)
        else:
            self._used_before = max(self._used_before, self._size)
        self._size = 0

    def _have(self, places: int) -> None:
        if places > len(self.values):
            # Zeros take no memory until they are used, and what is used is copied less often.
            grown = self._allocate(max(places, (4 if self._is_zero else 2) * len(self.values)))
            grown[: self._size] = self.values[: self._size]
            self.values = grown

    def _allocate(self, capacity: int) -> npt.NDArray[Any]:
        """Zeros are free until they are touched; any other fill has to be written."""
        self._used_before = 0
        if self._is_zero:
            return np.zeros(capacity, self._dtype)
        return np.full(capacity, self._fill, self._dtype)


class FreezableColumn(GrowableColumn):
    """A column that is changed in place, and copied at a barrier.

    The memory of the next copy grows with the column: touching new memory costs several times what copying
    does, and a barrier would have to do it all at once.
    """

    def __init__(self, dtype: npt.DTypeLike, fill: Any = 0) -> None:
        super().__init__(dtype, fill)
        self._copies: list[_Copy] = []
        """The second is for a barrier that comes while somebody still reads the first."""

    def grow(self, size: int) -> None:
        before = len(self.values)
        super().grow(size)
        if len(self.values) != before:
            self._copies.clear()
        if not self._copies:
            self._copies.append(self._new_copy())
        self._copies[0].touch(self._size)

    def keep(self, rows: Indices) -> None:
        before = len(self.values)
        super().keep(rows)
        if len(self.values) != before:
            self._copies.clear()

    def frozen(self) -> FrozenColumn:
        """A copy of the places in use. Short: it goes where a copy before lay that nobody needs any more."""
        copy = next((copy for copy in self._copies if copy.is_free), None)
        if copy is None:
            copy = self._new_copy()
            self._copies[1:] = [copy]
        return copy.of(self.used())

    def _new_copy(self) -> _Copy:
        return _Copy(np.empty(self.values.shape, self.values.dtype))


class ArrowRows:
    """Rows that are appended and read by number; what is frozen in a snapshot is never copied.

    Pieces of the same level are merged once there are `_MERGE_PIECES` of them, into one of the next level:
    a row is copied a few times in its life, and there are few pieces.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._pieces: list[pa.RecordBatch] = []
        self._levels: list[int] = []
        """The level of each piece, never rising."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, batch: pa.RecordBatch, rows: Indices) -> None:
        """Add these rows of the batch at the end; it may have other columns, too."""
        if not len(rows):
            return
        piece = batch.select(self._schema.names).take(pa.array(rows))
        if piece.schema != self._schema and piece.schema.types == self._schema.types:
            # From a savepoint that was made of rows, whose columns may say otherwise what can be null.
            piece = pa.RecordBatch.from_arrays(piece.columns, schema=self._schema)
        self._pieces.append(piece)
        self._levels.append(0)
        self._size += len(rows)
        while len(self._levels) >= _MERGE_PIECES and self._levels[-_MERGE_PIECES] == self._levels[-1]:
            tail = self._pieces[-_MERGE_PIECES:]
            if sum(int(piece.nbytes) for piece in tail) > _MERGE_MAX_BYTES:
                break
            self._pieces[-_MERGE_PIECES:] = pa.Table.from_batches(tail).combine_chunks().to_batches()
            self._levels[-_MERGE_PIECES:] = [self._levels[-1] + 1]

    def frozen(self) -> ArrowRows:
        """These rows as they are now, for another thread; nothing is copied."""
        twin = ArrowRows(self._schema)
        twin._pieces = self._pieces.copy()
        twin._levels = self._levels.copy()
        twin._size = self._size
        return twin

    def take(self, rows: Indices) -> pa.RecordBatch:
        """These rows, in this order."""
        if not len(rows):
            return one_batch(self._schema.empty_table())
        if len(self._pieces) > 1:  # taking from several pieces at once is slow
            self._replace(pa.Table.from_batches(self._pieces, self._schema).combine_chunks().to_batches())
        if len(self._pieces) > 1:  # more than 2 GiB of text
            return one_batch(pa.Table.from_batches(self._pieces, self._schema).take(pa.array(rows)))
        return take_rows(self._pieces[0], rows)

    def keep(self, rows: Indices) -> None:
        """Keep these rows only, in this order."""
        kept = self.take(rows)
        self._replace([kept] if kept.num_rows else [])
        self._size = len(rows)

    def _replace(self, pieces: list[pa.RecordBatch]) -> None:
        self._pieces = pieces
        self._levels = [_TOP_LEVEL] * len(pieces)
