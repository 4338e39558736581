"""Bytes of many rows, put together of pieces: what is written into Avro datums and Kafka's records.

A piece is what each row has at one place: a few bytes, such as a number's, or an array's value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.records import Int64s, Mask

_U = np.uint64
_CONTINUED = _U(0x8080808080808080)
_WORD_BYTES = 8
_VARINT_BYTES_MAX = 10
_EMPTY = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True, slots=True)
class Narrow:
    """A few bytes for each row: those of the row of `bytes_` where `is_kept` is true."""

    bytes_: npt.NDArray[np.uint8]
    is_kept: Mask

    def only(self, rows: Mask) -> Narrow:
        """Nothing for the other rows."""
        return Narrow(self.bytes_, self.is_kept & rows[:, None])


Piece: TypeAlias = Narrow | pa.Array
"""The array is large_binary; null is nothing."""


def joined(pieces: Sequence[Piece]) -> pa.Array:
    """The bytes of all pieces of each row, as large_binary."""
    whole: list[pa.Array] = []
    narrow: list[Narrow] = []
    for piece in pieces:
        if isinstance(piece, Narrow):
            narrow.append(piece)
            continue
        if narrow:
            whole.append(_binary(narrow))
            narrow = []
        whole.append(piece)
    if narrow:
        whole.append(_binary(narrow))
    if len(whole) == 1 and not whole[0].null_count:
        return whole[0]
    return pc.binary_join_element_wise(*whole, _EMPTY, null_handling="replace", null_replacement="")


def _binary(pieces: Sequence[Narrow]) -> pa.Array:
    bytes_ = pieces[0].bytes_ if len(pieces) == 1 else np.hstack([p.bytes_ for p in pieces])
    is_kept = pieces[0].is_kept if len(pieces) == 1 else np.hstack([p.is_kept for p in pieces])
    offsets = np.zeros(len(bytes_) + 1, np.int64)
    np.cumsum(np.count_nonzero(is_kept, axis=1), out=offsets[1:])
    data = bytes_[is_kept]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(bytes_), buffers)


def regrouped(items: pa.Array, offsets: Int64s) -> pa.Array:
    """The bytes of the items of each row, without copying them: row i has items offsets[i] to
    offsets[i + 1]. The items are large_binary without nulls."""
    buffers = [None, pa.py_buffer(offsets_of(items)[offsets]), items.buffers()[2]]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def constant(value: bytes, count: int) -> Narrow:
    """The same bytes in every row."""
    bytes_ = np.broadcast_to(np.frombuffer(value, np.uint8), (count, len(value)))
    return Narrow(bytes_, np.ones(bytes_.shape, np.bool_))


def fixed_width(values: npt.NDArray[Any]) -> Narrow:
    """The numbers as they are in memory (little-endian)."""
    bytes_ = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)
    return Narrow(bytes_, np.ones(bytes_.shape, np.bool_))


def varints(values: Int64s) -> Narrow:
    """Zigzag integers of variable length: seven bits to a byte, the lowest first."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    largest = int(zigzag.max()) if len(zigzag) else 0
    if largest < 0x80:
        return fixed_width(zigzag.astype(np.uint8))
    size = np.ones(len(values), np.int64)
    for i in range(1, _VARINT_BYTES_MAX):
        if largest < 1 << (7 * i):
            break
        size += zigzag >= _U(1 << (7 * i))
    if largest >> (7 * _WORD_BYTES):
        return _long_varints(zigzag, size)
    word = zigzag & _U(0x000000000FFFFFFF) | (zigzag & _U(0x00FFFFFFF0000000)) << _U(4)
    word = word & _U(0x00003FFF00003FFF) | (word & _U(0x0FFFC0000FFFC000)) << _U(2)
    word = word & _U(0x007F007F007F007F) | (word & _U(0x3F803F803F803F80)) << _U(1)
    word |= _CONTINUED & ((_U(1) << (8 * (size - 1)).view(np.uint64)) - _U(1))
    width = int(size.max())
    bytes_ = word.astype("<u8", copy=False).view(np.uint8).reshape(len(word), _WORD_BYTES)[:, :width]
    return Narrow(bytes_, np.arange(width) < size[:, None])


def _long_varints(zigzag: npt.NDArray[np.uint64], size: Int64s) -> Narrow:
    bytes_ = np.empty((len(zigzag), _VARINT_BYTES_MAX), np.uint8)
    for i in range(_VARINT_BYTES_MAX):
        bytes_[:, i] = (zigzag >> _U(7 * i)) & _U(0x7F)
    places = np.arange(_VARINT_BYTES_MAX)
    bytes_ |= np.where(places < size[:, None] - 1, np.uint8(0x80), np.uint8(0))
    return Narrow(bytes_, places < size[:, None])
