"""Decimal text to numbers, for kernels. Needs numba.

Eight digits are read at once, as one little-endian word: on a big-endian machine numbers would be wrong.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onceflow.runtime.kernels.blocks import (
    bits_of_float,
    float_of_bits,
    is_below,
    leading_zeros,
    product_high,
    shift_right,
    trailing_zeros,
)
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import load_int64, load_uint8

DIGITS_MAX = 19
"""The most digits of an integer: more may not fit into 64 bits."""

_ZEROS = 0x3030303030303030
_ABOVE_NINE = 0x7676767676767676
_TOP_BITS = -0x7F7F7F7F7F7F7F80  # 0x80 in each byte
_EXACT_MANTISSA = 1 << 53
_EXACT_POWER = 22
_POWER_MAX = 80
"""Decimal exponents of numbers that `decimal_to_float` takes, either way."""

_INTEGER_POWERS = np.array([10**i for i in range(DIGITS_MAX)], np.int64)
_FLOAT_POWERS = np.array([10.0**i for i in range(_EXACT_POWER + 1)])


def _five_powers() -> npt.NDArray[np.int64]:
    """The upper 128 bits of 5^q for each 10^q, the highest bit set: rounded down for q >= 0, up for q < 0."""
    words = []
    for power in range(-_POWER_MAX, _POWER_MAX + 1):
        if power >= 0:
            five = 5**power
            shift = five.bit_length() - 128
            bits = five >> shift if shift >= 0 else five << -shift
        else:
            five = 5**-power
            bits = (1 << (five.bit_length() + 127)) // five + 1
        words += [bits >> 64, bits & ((1 << 64) - 1)]
    return np.array(words, np.uint64).view(np.int64)


_FIVES = _five_powers()


@kernel
def read_digits(at: int, number: int) -> tuple[int, int]:
    """Continues `number` with the digits there: where they end, and the number.

    Reads 24 digits at most, so at most 32 bytes; above DIGITS_MAX in all the number is meaningless.
    """
    for _ in range(3):
        word = load_int64(at) ^ _ZEROS
        others = ((word + _ABOVE_NINE) | word) & _TOP_BITS
        if others != 0:
            count = trailing_zeros(others) >> 3
            if count == 0:
                break
            word <<= 64 - 8 * count
            return at + count, number * _INTEGER_POWERS[count] + _eight_digits(word)
        at += 8
        number = number * 100_000_000 + _eight_digits(word)
    return at, number


@kernel
def skip_digits(at: int) -> int:
    """Where the digits here end; 24 bytes on if there are more."""
    for _ in range(3):
        word = load_int64(at) ^ _ZEROS
        others = ((word + _ABOVE_NINE) | word) & _TOP_BITS
        if others != 0:
            return at + (trailing_zeros(others) >> 3)
        at += 8
    return at


@kernel
def _eight_digits(word: int) -> int:
    """A word of bytes from 0 to 9, the first digit in the lowest byte: neighbours are joined three times."""
    pairs = shift_right(word * 2561, 8) & 0x00FF00FF00FF00FF
    fours = shift_right(pairs * 6553601, 16) & 0x0000FFFF0000FFFF
    return shift_right(fours * 42949672960001, 32)


@kernel
def read_exponent(at: int) -> tuple[int, int]:
    """The exponent after an `e`: where it ends, and its value; (-1, 0) if it isn't one or two digits long."""
    sign = load_uint8(at)
    if sign == 0x2B or sign == 0x2D:
        at += 1
    start = at
    at, exponent = read_digits(at, int(np.int64(0)))
    if at == start or at > start + 2:
        return -1, 0
    return at, -exponent if sign == 0x2D else exponent


@kernel
def decimal_to_float(mantissa: int, power: int) -> float:
    """The double nearest to mantissa * 10^power, as IEEE 754 rounds; NaN where that is not certain or
    `power` is far from 0. The mantissa is not negative.

    A product of two doubles that are exact is rounded once, so right (Clinger). Else the algorithm of
    Eisel and Lemire, "Number parsing at a gigabyte per second", without its rare branches: NaN there.
    """
    if mantissa <= _EXACT_MANTISSA and -_EXACT_POWER <= power <= _EXACT_POWER:
        if power < 0:
            return mantissa / float(_FLOAT_POWERS[-power])
        return mantissa * float(_FLOAT_POWERS[power])
    if mantissa == 0:
        return 0.0
    if power < -_POWER_MAX or power > _POWER_MAX:
        return np.nan
    zeros = leading_zeros(mantissa)
    mantissa <<= zeros
    index = 2 * (power + _POWER_MAX)
    high = product_high(mantissa, _FIVES[index])
    low = mantissa * _FIVES[index]
    more = product_high(mantissa, _FIVES[index + 1])
    low += more
    high += is_below(low, more)
    if low == -1 or low == 0 or low == 1:  # too near to a tie or to a carry
        return np.nan
    upper = shift_right(high, 63)
    bits = shift_right(high, upper + 9)  # 54 bits: one more than a double has, to round
    bits += bits & 1
    bits = shift_right(bits, 1)
    exponent = ((217706 * power) >> 16) + 1086 + upper - zeros
    # Rounding up to 2^53 carries into the exponent by itself.
    return float_of_bits((exponent << 52) + bits - (1 << 52))


@kernel
def negated(number: float) -> float:
    """-number, also of zero."""
    return float_of_bits(bits_of_float(number) ^ (-1 << 63))
