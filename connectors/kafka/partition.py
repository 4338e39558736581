"""Which partition a key belongs to: Kafka's murmur2, in columns, so that it agrees with Java producers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.arrow_offsets import offsets_of
from onceflow.runtime.kernels.compiled import kernels_loaded

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)

Partitions = npt.NDArray[np.int32]


def murmur2(values: pa.LargeBinaryArray) -> npt.NDArray[np.uint32]:
    """Kafka's `Utils.murmur2` of each value, as uint32; what a null gives means nothing."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.uint32)
    offsets, data = _buffers(values)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = _SEED ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for word in range(int(words.max())):
        rows = np.flatnonzero(words > word)
        at = starts[rows] + 4 * word
        block = (
            data[at].astype(np.uint32)
            | data[at + 1].astype(np.uint32) << np.uint32(8)
            | data[at + 2].astype(np.uint32) << np.uint32(16)
            | data[at + 3].astype(np.uint32) << np.uint32(24)
        )
        block *= _M
        block ^= block >> np.uint32(24)
        block *= _M
        hashes[rows] = hashes[rows] * _M ^ block
    _mix_rest(hashes, data, starts + 4 * words, lengths & 3)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def partition_of_key(keys: pa.LargeBinaryArray, partitions: int) -> Partitions:
    """As Java's default partitioner does it for records with a key; what a null gets means nothing.

    By a kernel where others have loaded numba: alone it would not be worth that.
    """
    if kernels_loaded():
        return by_kernel(keys, partitions)
    return by_columns(keys, partitions)


def by_columns(keys: pa.LargeBinaryArray, partitions: int) -> Partitions:
    """See partition_of_key."""
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)


def by_kernel(keys: pa.LargeBinaryArray, partitions: int) -> Partitions:
    """See partition_of_key. Needs numba."""
    from onceflow.connectors.kafka.partition_kernels import choose

    found = np.empty(len(keys), np.int32)
    if len(keys):
        offsets, data = _buffers(keys)
        choose(offsets.ctypes.data, data.ctypes.data, partitions, found)
    return found


def order_by(partition: Partitions) -> npt.NDArray[np.int64]:
    """The rows' numbers by partition, those of one partition in their order."""
    # NumPy sorts 16 bits by radix, in a tenth of the time.
    narrow = partition.astype(np.int16) if partition.max(initial=0) < 1 << 15 else partition
    return np.argsort(narrow, kind="stable")


def _buffers(values: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    data_buffer, offsets = values.buffers()[2], offsets_of(values)
    if data_buffer is None or data_buffer.size == 0:
        return offsets, np.zeros(1, dtype=np.uint8)
    return offsets, np.frombuffer(data_buffer, dtype=np.uint8)


def _mix_rest(
    hashes: npt.NDArray[np.uint32],
    data: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64],
    rest: npt.NDArray[np.int64],
) -> None:
    """The last one to three bytes."""
    for byte in (2, 1, 0):
        rows = np.flatnonzero(rest > byte)
        hashes[rows] ^= data[at[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(rest)
    hashes[rows] *= _M
