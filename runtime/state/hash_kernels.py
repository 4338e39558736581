"""XXH3 (64 bit) over a column of texts, without a detour through polars. Needs numba: see compiled.py.

The algorithm is Yann Collet's, whose specification is that of the xxHash library 0.8. Keys are short, so
only its forms for up to 240 bytes are here; `hashing.py` leaves columns with longer ones to polars.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import load_int32, load_uint8, load_uint64
from onceflow.runtime.state.hash_constants import MIX_4_TO_8, MIX_AVALANCHE, SECRET_WORDS

LENGTH_MAX = 240
"""The longest text that is hashed here, in bytes."""

_LOW_32 = np.uint64(0xFFFFFFFF)
_PRIME64_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME64_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME64_3 = np.uint64(0x165667B19E3779F9)
_N8, _N16, _N24, _N28, _N29 = (np.uint64(n) for n in (8, 16, 24, 28, 29))
_N32, _N33, _N35, _N37, _N49 = (np.uint64(n) for n in (32, 33, 35, 37, 49))
_N15, _N40 = np.uint64(15), np.uint64(40)


def _folded_product(typing_context: Any, left: Any, right: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)
        return builder.xor(builder.trunc(product, word), high)

    return types.uint64(types.uint64, types.uint64), generate


def _swapped_bytes(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


def _instruction(typed: Callable[..., Any]) -> Any:
    return intrinsic(typed)


_multiply_and_fold: Callable[[Any, Any], Any] = _instruction(_folded_product)
"""The two halves of the product of 128 bits, xor-ed."""
_swap_bytes: Callable[[Any], Any] = _instruction(_swapped_bytes)


@kernel
def _avalanche(mixed: np.uint64) -> np.uint64:
    mixed = (mixed ^ (mixed >> _N37)) * MIX_AVALANCHE
    return mixed ^ (mixed >> _N32)


@kernel
def _avalanche_of_xxh64(mixed: np.uint64) -> np.uint64:
    mixed = (mixed ^ (mixed >> _N33)) * _PRIME64_2
    mixed = (mixed ^ (mixed >> _N29)) * _PRIME64_3
    return mixed ^ (mixed >> _N32)


@kernel
def _mix_16(text: int, at: int, seed: np.uint64) -> np.uint64:
    """16 bytes against the 16 of the secret from `at` on."""
    low = load_uint64(text) ^ (SECRET_WORDS[at] + seed)
    return np.uint64(_multiply_and_fold(low, load_uint64(text + 8) ^ (SECRET_WORDS[at + 8] - seed)))


@kernel
def _up_to_16(text: int, length: int, seed: np.uint64) -> np.uint64:
    size = np.uint64(length)
    if length > 8:
        low = load_uint64(text) ^ ((SECRET_WORDS[24] ^ SECRET_WORDS[32]) + seed)
        high = load_uint64(text + length - 8) ^ ((SECRET_WORDS[40] ^ SECRET_WORDS[48]) - seed)
        return _avalanche(np.uint64(size + _swap_bytes(low) + high + _multiply_and_fold(low, high)))
    if length >= 4:
        seed ^= _swap_bytes(seed & _LOW_32)
        first = np.uint64(load_int32(text)) & _LOW_32
        last = np.uint64(load_int32(text + length - 4)) & _LOW_32
        mixed = (last + (first << _N32)) ^ ((SECRET_WORDS[8] ^ SECRET_WORDS[16]) - seed)
        mixed ^= ((mixed << _N49) | (mixed >> _N15)) ^ ((mixed << _N24) | (mixed >> _N40))
        mixed *= MIX_4_TO_8
        mixed ^= (mixed >> _N35) + size
        mixed *= MIX_4_TO_8
        return np.uint64(mixed ^ (mixed >> _N28))
    if length:
        first = np.uint64(load_uint8(text))
        middle = np.uint64(load_uint8(text + (length >> 1)))
        last = np.uint64(load_uint8(text + length - 1))
        combined = (first << _N16) | (middle << _N24) | last | (size << _N8)
        return _avalanche_of_xxh64(combined ^ (((SECRET_WORDS[0] ^ SECRET_WORDS[4]) & _LOW_32) + seed))
    return _avalanche_of_xxh64(seed ^ (SECRET_WORDS[56] ^ SECRET_WORDS[64]))


@kernel
def _up_to_240(text: int, length: int, seed: np.uint64) -> np.uint64:
    mixed = np.uint64(length) * _PRIME64_1
    if length <= 128:
        for i in range((length - 1) >> 5, -1, -1):
            mixed += _mix_16(text + 16 * i, 32 * i, seed)
            mixed += _mix_16(text + length - 16 * (i + 1), 32 * i + 16, seed)
        return _avalanche(mixed)
    for i in range(8):
        mixed += _mix_16(text + 16 * i, 16 * i, seed)
    mixed = _avalanche(mixed)
    for i in range(8, length >> 4):
        mixed += _mix_16(text + 16 * i, 16 * (i - 8) + 3, seed)
    return _avalanche(mixed + _mix_16(text + length - 16, 136 - 17, seed))


@kernel
def hash_texts(ends: Any, data: int, seed: np.uint64, hashes: Any) -> bool:
    """Write into `hashes` the hash of each text; text i is from address data + ends[i] to data + ends[i + 1].

    False: there is one longer than LENGTH_MAX, and the hashes are worth nothing.
    """
    for row in range(len(hashes)):
        start = int(ends[row])
        length = int(ends[row + 1]) - start
        if length <= 16:
            hashes[row] = _up_to_16(data + start, length, seed)
        elif length <= LENGTH_MAX:
            hashes[row] = _up_to_240(data + start, length, seed)
        else:
            return False
    return True
