"""Which partition a key belongs to: Kafka's murmur2, in columns, so that it agrees with Java producers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
    """As Java's default partitioner does it for records with a key."""
    return ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)


def _buffers(values: pa.LargeBinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64, count=len(values) + 1, offset=8 * values.offset)
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
