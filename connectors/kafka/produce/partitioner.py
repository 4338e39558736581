"""The partition that a row belongs to: by its key with Kafka's murmur2, as Java producers choose;
or by a column that says it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.errors import Fatal
from onceflow.runtime.kernels.ops import ops

_SEED, _M, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
_WORD_BYTES = 4
_POSITIVE = 0x7FFFFFFF

Partitions = npt.NDArray[np.int32]


def partition_by_key(keys: pa.Array, partitions: int, unkeyed: Partitions | int) -> Partitions:
    """The partition of each row: of its key (text or bytes), as Java's default partitioner chooses; a row
    without a key gets the one that `unkeyed` says."""
    if not keys.null_count:
        return partition_of_key(keys, partitions)
    if keys.null_count == len(keys):
        return np.full(len(keys), unkeyed, np.int32)
    has_key = keys.is_valid().to_numpy(zero_copy_only=False)
    return np.where(has_key, partition_of_key(keys, partitions), unkeyed).astype(np.int32, copy=False)


def partition_of_key(keys: pa.Array, partitions: int) -> Partitions:
    """The partition of each key (text or bytes), chosen as Java's default partitioner does; what a null gets
    means nothing."""
    return by_kernel(keys, partitions) if ops().are_compiled else one_by_one(keys, partitions)


def one_by_one(keys: pa.Array, partitions: int) -> Partitions:
    """See partition_of_key."""
    values = keys.cast(pa.large_binary()).to_pylist()
    return np.array([(murmur2(key or b"") & _POSITIVE) % partitions for key in values], np.int32)


def murmur2(key: bytes) -> int:
    """Kafka's `Utils.murmur2`, unsigned."""
    found = _SEED ^ len(key)
    rest = len(key) % _WORD_BYTES
    for at in range(0, len(key) - rest, _WORD_BYTES):
        word = int.from_bytes(key[at : at + _WORD_BYTES], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        found = found * _M & _MASK ^ word
    if rest:
        found = (found ^ int.from_bytes(key[-rest:], "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15


def by_kernel(keys: pa.Array, partitions: int) -> Partitions:
    """See partition_of_key."""
    from onceflow.connectors.kafka.produce.partition_kernels import choose  # imports numba

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
