"""Over JSON that nobody wants, checked to be well formed: RFC 8259, and nothing else.

For row_kernels.py, which says what positions and ODD are. Text need not be UTF-8, numbers need not be
within any range, but what is longer or deeper than usual is odd.
"""

from __future__ import annotations

import numpy as np

from onceflow.runtime.kernels.blocks import BLOCK, text_stops, trailing_zeros
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import load_int32, load_uint8
from onceflow.runtime.kernels.numbers import read_exponent, skip_digits
from onceflow.runtime.kernels.text import read_escape

ODD = -1
DEPTH_MAX = 60
STOPS = 0xFFFFFFFF
"""The part of text_stops that is about quotes, backslashes and control characters."""

QUOTE, BACKSLASH, COMMA, COLON, MINUS, DOT, ZERO = 0x22, 0x5C, 0x2C, 0x3A, 0x2D, 0x2E, 0x30
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
SPACE, LOWER = 0x20, 0x20
E, T, F, N = 0x65, 0x74, 0x66, 0x6E
TRUE, AFTER_F, NULL = 0x65757274, 0x65736C61, 0x6C6C756E
"""Four letters as one little-endian word."""


@kernel
def skip_space(at: int, end: int) -> int:
    while at < end:
        byte = load_uint8(at)
        if byte > SPACE or (byte != SPACE and byte != 0x0A and byte != 0x0D and byte != 0x09):
            break
        at += 1
    return at


@kernel
def skip_value(at: int, end: int) -> int:
    first = load_uint8(at)
    if first == QUOTE:
        return skip_text(at + 1, end)
    if first | LOWER == OPEN_OBJECT:  # or an array
        return _skip_nested(at, end)
    return _skip_scalar(at, first)


@kernel
def skip_text(at: int, end: int) -> int:
    while at < end:
        stops = text_stops(at) & STOPS
        if stops == 0:
            at += BLOCK
            continue
        at += trailing_zeros(stops)
        stop = load_uint8(at)
        if stop == QUOTE:
            return at + 1
        if stop != BACKSLASH:
            return ODD
        at, _ = read_escape(at)
        if at == ODD:
            return ODD
    return ODD


@kernel
def _skip_scalar(at: int, first: int) -> int:
    """A number of up to 24 digits, or a literal."""
    if first == T:
        return at + 4 if load_int32(at) == TRUE else ODD
    if first == N:
        return at + 4 if load_int32(at) == NULL else ODD
    if first == F:
        return at + 5 if load_int32(at + 1) == AFTER_F else ODD
    start = at + 1 if first == MINUS else at
    at = skip_digits(start)
    if at == start or (at > start + 1 and load_uint8(start) == ZERO):
        return ODD
    if load_uint8(at) == DOT:
        point = at
        at = skip_digits(point + 1)
        if at == point + 1:
            return ODD
    if load_uint8(at) | LOWER == E:
        at, _ = read_exponent(at + 1)
    return at


@kernel
def _skip_nested(at: int, end: int) -> int:
    """An object or an array. `inside` has a bit for each level, 1 for an object."""
    inside = depth = int(np.int64(0))
    while at < end:
        first = load_uint8(at)
        if first | LOWER == OPEN_OBJECT:  # or an array
            is_object = first == OPEN_OBJECT
            depth += 1
            inside = inside << 1 | (1 if is_object else 0)
            at = skip_space(at + 1, end)
            if load_uint8(at) != (CLOSE_OBJECT if is_object else CLOSE_ARRAY):
                if is_object:
                    at = skip_name(at, end)
                if at == ODD or depth == DEPTH_MAX:
                    return ODD
                continue
        elif first == QUOTE:
            at = skip_text(at + 1, end)
        else:
            at = _skip_scalar(at, first)
        at, inside, depth = _leave(at, end, inside, depth)
        if at == ODD or depth == 0:
            return at
    return ODD


@kernel
def _leave(at: int, end: int, inside: int, depth: int) -> tuple[int, int, int]:
    """Go on after a value: out of all that ends here, and to the next value."""
    while ODD < at < end:
        at = skip_space(at, end)
        byte = load_uint8(at)
        is_object = inside & 1 == 1
        if byte == COMMA:
            at = skip_space(at + 1, end)
            return skip_name(at, end) if is_object else at, inside, depth
        if byte != (CLOSE_OBJECT if is_object else CLOSE_ARRAY):
            break
        at += 1
        inside >>= 1
        depth -= 1
        if depth == 0:
            return at, inside, depth
    return ODD, inside, depth


@kernel
def skip_name(at: int, end: int) -> int:
    """Skips a name, its colon and the space around that."""
    if load_uint8(at) != QUOTE:
        return ODD
    at = skip_text(at + 1, end)
    if at == ODD:
        return ODD
    at = skip_space(at, end)
    return skip_space(at + 1, end) if load_uint8(at) == COLON else ODD
