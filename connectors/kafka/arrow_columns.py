"""Arrow columns whose bytes kernels copy: what kernels fill, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.kafka.fetched import HEADERS_TYPE
from onceflow.runtime.arrays.recycled_memory import Memory
from onceflow.runtime.records import Int64s

BINARY_BYTES_MAX = int(np.iinfo(np.int32).max)
"""More bytes in one column make it large_binary."""

CopyBytes = Callable[[npt.NDArray[Any], npt.NDArray[np.uint8], int], None]
"""Copies one column. Called with room for the places where rows begin (one more than rows), a bitmap of zeros
that gets a one for each row that is there (empty: not needed), and the address to copy to."""

CopyHeaders = Callable[[npt.NDArray[np.int32], int, npt.NDArray[np.int32], int, npt.NDArray[np.uint8]], None]
"""Copies headers. Called with room for the places where names begin and the address to copy them to, the same
for values, and the bitmap of the values that are there."""


def bytes_column(
    count: int, size: int, nulls: int, bytes_max: int, copy: CopyBytes, memory: Memory | None = None
) -> pa.Array:
    """`count` rows of `size` bytes in all, of its own memory, or of this: binary, or large_binary beyond
    bytes_max."""
    fits = size <= bytes_max
    data = pa.allocate_buffer(size) if memory is None else _claimed(memory, size)
    starts: npt.NDArray[Any] = np.empty(count + 1, np.int32 if fits else np.int64)
    valid = np.zeros((count + 7) // 8 if nulls else 0, np.uint8)
    copy(starts, valid, data.address)
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(starts), data]
    return pa.Array.from_buffers(pa.binary() if fits else pa.large_binary(), count, buffers, nulls)


def _claimed(memory: Memory, size: int) -> pa.Buffer:
    memory.reserve(size)
    return pa.py_buffer(memory.claim(size))


def headers_column(starts: npt.NDArray[np.int32], sums: Int64s, copy: CopyHeaders) -> pa.Array:
    """A column of HEADERS_TYPE. `starts`: as in headers_of; `sums`: how many headers, bytes of names, bytes
    of values and null values there are. Raises OverflowError if that is more than such a column can hold."""
    found, name_bytes, value_bytes, nulls = sums.tolist()
    if max(name_bytes, value_bytes) > BINARY_BYTES_MAX:
        raise OverflowError(f"headers of {len(starts) - 1} records have {name_bytes + value_bytes} bytes")
    names, values = pa.allocate_buffer(name_bytes), pa.allocate_buffer(value_bytes)
    name_starts, value_starts = np.empty(found + 1, np.int32), np.empty(found + 1, np.int32)
    valid = np.zeros((found + 7) // 8 if nulls else 0, np.uint8)
    copy(name_starts, names.address, value_starts, values.address, valid)
    bitmap = pa.py_buffer(valid) if nulls else None
    return headers_of(
        starts,
        pa.Array.from_buffers(pa.binary(), found, [None, pa.py_buffer(name_starts), names], 0),
        pa.Array.from_buffers(pa.binary(), found, [bitmap, pa.py_buffer(value_starts), values], nulls),
    )


def headers_of(starts: npt.NDArray[np.int32], names: pa.Array, values: pa.Array) -> pa.Array:
    """A column of HEADERS_TYPE. `starts`: where each record's headers begin, one more than records; `names`
    and `values`: binary, of all headers in their order. Bytes in a name that are no UTF-8 are replaced."""
    binary: Any = names
    try:
        texts = binary.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([name.decode(errors="replace") for name in binary.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([texts, values], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(starts), pairs, type=HEADERS_TYPE)
