"""Arrow arrays out of what was read of many Avro datums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.avro.plan import Read
from onceflow.runtime.records import Int64s, Mask

_DECIMAL_BYTES = 16


def fixed_width(values: npt.NDArray[Any], arrow: pa.DataType) -> pa.Array:
    """Numbers as an array of a type that holds exactly these bits."""
    return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def integers(values: Int64s, read: Read) -> pa.Array:
    """Numbers from the writer as the column's, in its unit. They are good for the column."""
    arrow: Any = read.arrow
    if read.times > 1:
        values = values * read.times
    elif read.over > 1:
        values = values // read.over
    if pa.types.is_floating(arrow):
        return pa.array(values.astype(arrow.to_pandas_dtype()))
    kind = "u" if pa.types.is_unsigned_integer(arrow) else "i"
    return fixed_width(values.astype(f"{kind}{arrow.bit_width // 8}", copy=False), arrow)


def floats(words: npt.NDArray[Any], read: Read) -> pa.Array:
    """The writer's floats or doubles, whose bits are in the lower half or all of each word."""
    if read.node.kind == "double":
        return fixed_width(words, read.arrow)
    halves = words.astype(np.uint32)
    if read.arrow == pa.float32():
        return fixed_width(halves, read.arrow)
    return pa.array(halves.view(np.float32).astype(np.float64))


def symbols(index: Int64s, read: Read) -> pa.Array:
    """The texts of an enum's values."""
    return pa.array(read.node.symbols, read.arrow).take(pa.array(index))


def text(raw: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Bytes without nulls as text. Raises ArrowInvalid if one of them is not UTF-8."""
    _, offsets, data = raw.buffers()
    as_text = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}[raw.type]
    if arrow != as_text or not len(raw) or raw.offset:
        return raw.cast(arrow)
    kind = np.int32 if arrow == pa.string() else np.int64
    size = int(np.frombuffer(offsets, kind)[len(raw)])
    if size and int(np.frombuffer(data, np.uint8, size).max()) >= 0x80:
        return raw.cast(arrow)
    return pa.Array.from_buffers(arrow, len(raw), raw.buffers())  # ASCII needs no look at each of them


def with_nulls(array: pa.Array, is_valid: Mask) -> pa.Array:
    """The same array, which has no nulls, with null where it is not valid."""
    if is_valid.all():
        return array
    bits = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bits, *array.buffers()[1:]], offset=array.offset)


def is_utf8(value: bytes) -> bool:
    """Whether the bytes are text."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def decimals(
    data: npt.NDArray[np.uint8], start: Int64s, size: Int64s, arrow: pa.DataType
) -> tuple[pa.Array, Mask]:
    """Big-endian two's complements as decimal128, and which of them are too large (or too long to tell)."""
    wrong: Mask = size > _DECIMAL_BYTES
    size = np.where(wrong, 0, size)
    sign = np.where((size > 0) & (data[start] >= 0x80), 0xFF, 0).astype(np.uint8)
    little = np.empty((len(start), _DECIMAL_BYTES), np.uint8)
    last = start + size - 1
    for i in range(_DECIMAL_BYTES):
        little[:, i] = np.where(size > i, data[np.maximum(last - i, 0)], sign)
    halves = little.view("<u8")
    low, high = halves[:, 0], halves[:, 1].view("<i8")
    bound = 10**arrow.precision
    wrong |= ~_is_less(high, low, bound) | _is_less(high, low, 1 - bound)
    little[wrong] = 0
    return fixed_width(little, arrow), wrong


def _is_less(high: npt.NDArray[np.int64], low: npt.NDArray[np.uint64], bound: int) -> Mask:
    """Which of these integers of 128 bits, given in two halves, are below the bound."""
    bound_high, bound_low = np.int64(bound >> 64), np.uint64(bound & ((1 << 64) - 1))
    less: Mask = (high < bound_high) | ((high == bound_high) & (low < bound_low))
    return less


def lists(
    arrow: pa.DataType, count: int, owners: Sequence[Int64s], keys: Sequence[Any], items: Sequence[Any]
) -> pa.Array:
    """Lists or maps of `count` rows, from items as they were read: the first of every row that has one,
    then the second, and so on. `owners` says whose they are."""
    is_map = pa.types.is_map(arrow)
    owner = np.concatenate(owners) if owners else np.empty(0, np.int64)
    order = pa.array(np.argsort(owner, kind="stable"))
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=count), out=offsets[1:])
    item_type = arrow.item_type if is_map else arrow.value_type
    values = _whole(items, item_type).take(order)
    if is_map:
        names = _whole(keys, arrow.key_type).take(order)
        return pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), names, values, type=arrow)
    if pa.types.is_large_list(arrow):
        return pa.LargeListArray.from_arrays(pa.array(offsets), values, type=arrow)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, type=arrow)


def _whole(parts: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.concat_arrays(parts) if parts else pa.nulls(0, arrow)
