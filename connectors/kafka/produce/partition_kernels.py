"""The kernel that chooses partitions by key, as Java's producers do. Import only if kernels are enabled.

`partitioner.py` does the same for one key after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onceflow.runtime.kernels.blocks import product_high
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import load_int32, load_int64, load_uint8

_SEED = 0x9747B28C
_M = 0x5BD1E995
_WIDE = 8
_int64: Any = np.int64
_MASK = 0xFFFFFFFF
"""Numbers are unsigned and of 32 bits: in 64 signed ones the product of two fits, since _M has 31 bits."""


@kernel
def choose(
    starts: int, width: int, data: int, partitions: int, reciprocal: int, found: npt.NDArray[np.int32]
) -> None:
    """A partition for each key. `starts`: the address of their offsets, of 4 or 8 bytes, as `width` says;
    `data`: of the keys' bytes. `reciprocal`: 2^64 / partitions, rounded up, as a signed number.

    The rest of a division, by two products instead (Lemire, Kaser, Kurz: Faster Remainder by Direct
    Computation, 2019): exact, since hash and partitions have no more than 32 bits.
    """
    for row in range(len(found)):
        if width == _WIDE:
            at = load_int64(starts + 8 * row)
            count = load_int64(starts + 8 * row + 8) - at
        else:
            at = _int64(load_int32(starts + 4 * row))
            count = _int64(load_int32(starts + 4 * row + 4)) - at
        found[row] = product_high(reciprocal * (murmur2(data + at, count) & 0x7FFFFFFF), partitions)


@kernel
def murmur2(at: int, count: int) -> int:
    """Kafka's `Utils.murmur2` of the bytes at an address, unsigned."""
    found = _SEED ^ (count & _MASK)
    words = count >> 2
    for word in range(words):
        block = ((load_int32(at + 4 * word) & _MASK) * _M) & _MASK
        block = ((block ^ (block >> 24)) * _M) & _MASK
        found = ((found * _M) & _MASK) ^ block
    rest = count & 3
    if rest:
        if words:  # the last word, without what of it is in the word before
            found ^= (load_int32(at + count - 4) & _MASK) >> (8 * (4 - rest))
        else:
            for byte in range(rest):
                found ^= _int64(load_uint8(at + byte)) << (8 * byte)
        found = (found * _M) & _MASK
    found = ((found ^ (found >> 13)) * _M) & _MASK
    return found ^ (found >> 15)
