"""Kafka's varints by whole arrays: those of byte_pieces.py, the small ones out of a table."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

from onceflow.connectors import byte_pieces
from onceflow.runtime.records import Indices, Int64s

_BITS_OF_BYTE, _BITS = 7, 64
_TABLE = 1 << 14
"""So many numbers, from -1 on, are kept written."""
_FEW = 1_000
"""Copying so many of them costs less than to write a few anew."""


def varint_bytes(numbers: Int64s) -> Int64s:
    """How many bytes each takes."""
    sizes = np.ones(len(numbers), np.int64)
    # -1 is as long as 0, and all below it are as long as the number that is above by as much.
    upward = numbers if numbers.min() >= -1 else numbers ^ (numbers >> (_BITS - 1))
    most, bits = int(upward.max()), _BITS_OF_BYTE - 1
    while most >> bits > 0:
        sizes += upward >= 1 << bits
        bits += _BITS_OF_BYTE
    return sizes


def varints(numbers: Int64s, behind: bytes = b"") -> tuple[pa.LargeBinaryArray, Indices]:
    """Varints with these bytes behind each, and which of them is whose number's."""
    most = int(numbers.max())
    if numbers.min() >= -1 and most < min(_TABLE - 1, _FEW + 4 * len(numbers)):
        return _table(behind)[: most + 2], numbers + 1
    return _written(numbers, behind), np.arange(len(numbers))


@functools.cache
def _table(behind: bytes) -> pa.LargeBinaryArray:
    return _written(np.arange(-1, _TABLE - 1), behind)


def _written(numbers: Int64s, behind: bytes) -> pa.LargeBinaryArray:
    return byte_pieces.joined([byte_pieces.varints(numbers), byte_pieces.constant(behind, len(numbers))])
