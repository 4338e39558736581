"""Decimals as Avro has them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Int64s

_U = np.uint64
_DECIMAL_BYTES = 16


def decimal_bytes(array: pa.Array) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Unscaled decimals as 16 big-endian bytes each, and how many of the last ones are needed."""
    count = len(array)
    raw = np.frombuffer(array.buffers()[1], np.uint8)
    little = raw[array.offset * _DECIMAL_BYTES : (array.offset + count) * _DECIMAL_BYTES]
    little = little.reshape(count, _DECIMAL_BYTES)
    is_negative = little[:, -1:] >= 0x80
    # |v| without its last bit's worth where v is negative: -128 is taken as 128, which needs two bytes.
    size_of = np.where(is_negative, _negated(little), little)
    set_ = size_of != 0
    top = _DECIMAL_BYTES - 1 - np.argmax(set_[:, ::-1], axis=1)
    top = np.where(set_.any(axis=1), top, 0)
    size = top + 1 + (size_of[np.arange(count), top] >= 0x80)
    return np.ascontiguousarray(little[:, ::-1]), np.minimum(size, _DECIMAL_BYTES)


def _negated(little: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    flipped = ~little
    halves = np.ascontiguousarray(flipped).view("<u8").copy()
    halves[:, 0] += _U(1)
    halves[:, 1] += halves[:, 0] == 0
    return halves.view(np.uint8).reshape(little.shape)
