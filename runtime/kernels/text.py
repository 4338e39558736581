"""UTF-8 and the escapes of JSON strings, for kernels. Needs numba."""

from __future__ import annotations

from onceflow.runtime.kernels.blocks import BLOCK, store_uint8, text_stops
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import load_uint8

WRONG = -1
_ASCII_BLOCK = 32  # the bits of text_stops from here on
_STOPS = 0xFFFFFFFF  # those below
_FIRST_PLAIN, _QUOTE, _BACKSLASH = 0x20, 0x22, 0x5C
_U = 0x75
_HIGH_SURROGATES, _LOW_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xDC00, 0xE000


@kernel
def has_escapes(at: int, end: int) -> bool:
    """Whether JSON writes any of these characters other than as it is: quotes, backslashes, controls. Reads
    nothing behind the end."""
    while at + BLOCK <= end:
        if text_stops(at) & _STOPS != 0:
            return True
        at += BLOCK
    while at < end:
        byte = load_uint8(at)
        if byte < _FIRST_PLAIN or byte == _QUOTE or byte == _BACKSLASH:  # noqa: SIM109 - numba makes a set
            return True
        at += 1
    return False


@kernel
def is_utf8(at: int, end: int) -> bool:
    """Whether these bytes are UTF-8: nothing overlong, no surrogates, nothing above U+10FFFF. May read a
    block behind the end."""
    while at < end:
        if text_stops(at) >> _ASCII_BLOCK == 0:
            at += BLOCK
            continue
        lead = load_uint8(at)
        if lead < 0x80:
            at += 1
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if at + more >= end or not _is_second(lead, load_uint8(at + 1)):
            return False
        for i in range(2, more + 1):
            if load_uint8(at + i) & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@kernel
def _is_second(lead: int, byte: int) -> bool:
    """What may follow the first byte of a character is narrower for a few of them."""
    lowest = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    highest = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    return lowest <= byte <= highest


@kernel
def read_escape(at: int) -> tuple[int, int]:
    """The escape whose backslash is here: where it ends, and its code point; (WRONG, 0) for any other,
    and for a surrogate that has no partner. Reads 12 bytes at most."""
    letter = load_uint8(at + 1)
    if letter != _U:
        point = _short_escape(letter)
        return (WRONG, 0) if point == WRONG else (at + 2, point)
    point = _four_digits(at + 2)
    if point == WRONG or _LOW_SURROGATES <= point < _AFTER_SURROGATES:
        return WRONG, 0
    if point < _HIGH_SURROGATES or point >= _AFTER_SURROGATES:
        return at + 6, point
    if load_uint8(at + 6) != 0x5C or load_uint8(at + 7) != _U:
        return WRONG, 0
    low = _four_digits(at + 8)
    if low < _LOW_SURROGATES or low >= _AFTER_SURROGATES:
        return WRONG, 0
    return at + 12, 0x10000 + ((point - _HIGH_SURROGATES) << 10) + low - _LOW_SURROGATES


@kernel
def _short_escape(letter: int) -> int:
    if letter == 0x22 or letter == 0x5C or letter == 0x2F:  # themselves: " \ /
        return letter
    if letter == 0x6E:
        return 0x0A
    if letter == 0x74:
        return 0x09
    if letter == 0x72:
        return 0x0D
    if letter == 0x62:
        return 0x08
    return 0x0C if letter == 0x66 else WRONG


@kernel
def _four_digits(at: int) -> int:
    """The value of four hexadecimal digits, of either case."""
    number = 0
    for i in range(4):
        digit = load_uint8(at + i)
        lower = digit | 0x20
        if 0x30 <= digit <= 0x39:
            number = number * 16 + digit - 0x30
        elif 0x61 <= lower <= 0x66:
            number = number * 16 + lower - 0x57
        else:
            return WRONG
    return number


@kernel
def write_utf8(target: int, point: int) -> int:
    """Writes a code point that is no surrogate; where it ends."""
    if point < 0x80:
        store_uint8(target, point)
        return target + 1
    if point < 0x800:
        store_uint8(target, 0xC0 | point >> 6)
        store_uint8(target + 1, 0x80 | point & 0x3F)
        return target + 2
    if point < 0x10000:
        store_uint8(target, 0xE0 | point >> 12)
        store_uint8(target + 1, 0x80 | point >> 6 & 0x3F)
        store_uint8(target + 2, 0x80 | point & 0x3F)
        return target + 3
    store_uint8(target, 0xF0 | point >> 18)
    store_uint8(target + 1, 0x80 | point >> 12 & 0x3F)
    store_uint8(target + 2, 0x80 | point >> 6 & 0x3F)
    store_uint8(target + 3, 0x80 | point & 0x3F)
    return target + 4
