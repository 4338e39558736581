"""The partition that a row belongs to: by its key with Kafka's murmur2, in columns, as Java producers choose;
or by a column that says it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.arrow_offsets import offsets_of
from onceflow.runtime.errors import Fatal
from onceflow.runtime.kernels.compiled import kernels_loaded

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_WORD_BYTES = 4
_LOW_BYTES = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
_M_IF_ANY = np.array([1, _M, _M, _M], np.uint32)
"""The factor of the last word, by how many of its bytes are there: 0 to 3."""

Partitions = npt.NDArray[np.int32]


def murmur2(values: pa.Array) -> npt.NDArray[np.uint32]:
    """Kafka's `Utils.murmur2` of each value, texts or bytes, as uint32; what a null gives means nothing."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.uint32)
    offsets, data = _buffers(values)
    offsets = offsets.astype(np.int64, copy=False)  # by which NumPy looks up places
    first, end = int(offsets[0]), int(offsets[-1])
    at, lengths = offsets[:-1] - first, offsets[1:] - offsets[:-1]
    # A word from every byte on, the last ones too.
    padded = np.append(data[first:end], np.zeros(_WORD_BYTES, np.uint8))
    words_at = np.ndarray((len(padded) - _WORD_BYTES + 1,), "<u4", padded.data, strides=(1,))
    hashes: npt.NDArray[np.uint32] = _SEED ^ lengths.astype(np.uint32)
    words = lengths >> 2
    everywhere = int(words.min())
    for word in range(int(words.max())):
        rows = slice(None) if word < everywhere else np.flatnonzero(words > word)
        block = words_at[at[rows] + _WORD_BYTES * word]
        block *= _M
        block ^= block >> np.uint32(24)
        block *= _M
        hashes[rows] = hashes[rows] * _M ^ block
    rest = lengths & 3
    hashes ^= words_at[at + (lengths - rest)] & _LOW_BYTES[rest]
    hashes *= _M_IF_ANY[rest]
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def partition_of_key(keys: pa.Array, partitions: int) -> Partitions:
    """The partition of each key (text or bytes), chosen as Java's default partitioner does; what a null gets
    means nothing.

    A kernel does it where others have loaded numba: alone it would not be worth that.
    """
    if kernels_loaded():
        return by_kernel(keys, partitions)
    return by_columns(keys, partitions)


def by_columns(keys: pa.Array, partitions: int) -> Partitions:
    """See partition_of_key."""
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)


def by_kernel(keys: pa.Array, partitions: int) -> Partitions:
    """See partition_of_key. Needs numba."""
    from onceflow.connectors.kafka.partition_kernels import choose

    found = np.empty(len(keys), np.int32)
    if len(keys):
        offsets, data = _buffers(keys)
        reciprocal = ctypes.c_int64((1 << 64) // partitions + ((1 << 64) % partitions > 0)).value
        choose(offsets.ctypes.data, offsets.itemsize, data.ctypes.data, partitions, reciprocal, found)
    return found


def partition_of_column(column: pa.Array, partitions: int, name: str, topic: str) -> Partitions:
    """The partitions that a column of integers names. Raises Fatal for one that the topic does not have."""
    bounds = pc.min_max(column)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if column.null_count or low is None or low < 0 or high >= partitions:
        found = "null" if column.null_count else f"{low} to {high}"
        raise Fatal(
            f"column {name!r} holds partition {found}, but topic {topic!r} has partitions "
            f"0 to {partitions - 1}"
        )
    partition: Partitions = column.cast(pa.int32()).to_numpy()
    return partition


def _buffers(values: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    data_buffer, offsets = values.buffers()[2], offsets_of(values)
    if data_buffer is None or data_buffer.size == 0:
        return offsets, np.zeros(1, dtype=np.uint8)
    return offsets, np.frombuffer(data_buffer, dtype=np.uint8)
