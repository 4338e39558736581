"""XXH3 (64 bit) over a column of short texts by whole arrays, without kernels.

Of `hash_kernels.py`, which says where it comes from, the two forms that most keys need: for texts of 4 to 8
and of 9 to 16 bytes, all in a column of one form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onceflow.runtime.records import UInt64s
from onceflow.runtime.state.hash_constants import MIX_4_TO_8, MIX_AVALANCHE, SECRET_WORDS

_WORD_MAX = (1 << 64) - 1
_LOW_32 = np.uint64(0xFFFFFFFF)
_N15, _N24, _N28, _N32, _N35, _N37, _N40, _N49 = (np.uint64(n) for n in (15, 24, 28, 32, 35, 37, 40, 49))


def hash_texts(bounds: npt.NDArray[Any], data: npt.NDArray[np.uint8], seed: int) -> UInt64s | None:
    """The hash of each text, of which there is one at least; text i is data[bounds[i] : bounds[i + 1]]. None:
    they are not of one of the forms."""
    sizes = bounds[1:] - bounds[:-1]
    shortest, longest = int(sizes.min()), int(sizes.max())
    step = longest if shortest == longest else None
    if shortest >= 4 and longest <= 8:
        return _4_to_8(_words(bounds, data, 4, step), sizes, seed)
    if shortest >= 9 and longest <= 16:
        return _9_to_16(_words(bounds, data, 8, step), sizes, seed)
    return None


def _words(
    bounds: npt.NDArray[Any], data: npt.NDArray[np.uint8], width: int, step: int | None
) -> tuple[UInt64s, UInt64s]:
    """The first and the last `width` bytes of each text as numbers. `step`: how long each is, if all are."""
    if step is not None:
        first, count = int(bounds[0]), len(bounds) - 1
        places = (first, first + step - width)
        found = [np.ndarray((count,), f"<u{width}", data.data, place, (step,)) for place in places]
    else:
        everywhere = np.ndarray((len(data) - width + 1,), f"<u{width}", data.data, strides=(1,))
        found = [everywhere[bounds[:-1]], everywhere[bounds[1:] - width]]
    return found[0].astype(np.uint64), found[1].astype(np.uint64)


def _4_to_8(words: tuple[UInt64s, UInt64s], sizes: npt.NDArray[Any], seed: int) -> UInt64s:
    first, last = words
    seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(8, "little"), "big")
    mixed = last + (first << _N32)
    mixed ^= _number(int(SECRET_WORDS[8] ^ SECRET_WORDS[16]) - seed)
    mixed ^= ((mixed << _N49) | (mixed >> _N15)) ^ ((mixed << _N24) | (mixed >> _N40))
    mixed *= MIX_4_TO_8
    mixed ^= (mixed >> _N35) + sizes.astype(np.uint64)
    mixed *= MIX_4_TO_8
    mixed ^= mixed >> _N28
    return mixed


def _9_to_16(words: tuple[UInt64s, UInt64s], sizes: npt.NDArray[Any], seed: int) -> UInt64s:
    low, high = words
    low ^= _number(int(SECRET_WORDS[24] ^ SECRET_WORDS[32]) + seed)
    high ^= _number(int(SECRET_WORDS[40] ^ SECRET_WORDS[48]) - seed)
    mixed = sizes.astype(np.uint64) + low.byteswap() + high + _multiply_and_fold(low, high)
    mixed ^= mixed >> _N37
    mixed *= MIX_AVALANCHE
    mixed ^= mixed >> _N32
    return mixed


def _multiply_and_fold(left: UInt64s, right: UInt64s) -> UInt64s:
    """The two halves of the product of 128 bits, xor-ed."""
    left_low, left_high, right_low, right_high = left & _LOW_32, left >> _N32, right & _LOW_32, right >> _N32
    low_high = left_low * right_high
    middle = ((left_low * right_low) >> _N32) + (low_high & _LOW_32) + left_high * right_low
    folded: UInt64s = (left_high * right_high + (low_high >> _N32) + (middle >> _N32)) ^ (left * right)
    return folded


def _number(value: int) -> np.uint64:
    return np.uint64(value & _WORD_MAX)
