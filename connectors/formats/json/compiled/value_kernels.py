"""JSON values into columns, for row_kernels.py, which says what positions and ODD are."""

from __future__ import annotations

import numpy as np

from onceflow.connectors.formats.json.compiled.skip_kernels import (
    AFTER_F,
    BACKSLASH,
    DOT,
    LOWER,
    MINUS,
    NULL,
    ODD,
    QUOTE,
    STOPS,
    TRUE,
    ZERO,
    E,
    F,
    N,
    T,
)  # fmt: skip
from onceflow.runtime.kernels.blocks import (
    BLOCK,
    bits_of_float,
    copy_block,
    float_of_bits,
    store_int64,
    store_uint8,
    text_stops,
    trailing_zeros,
)  # fmt: skip
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import copy_bytes, load_int32, load_int64, load_uint8
from onceflow.runtime.kernels.numbers import DIGITS_MAX, decimal_to_float, read_digits, read_exponent
from onceflow.runtime.kernels.text import is_utf8, read_escape, write_utf8

INTEGER, FLOAT, BOOLEAN, TEXT = range(4)
"""What is in a column; each row of it is a word, for TEXT where the row's text ends."""

# A column: words from its address on.
KIND, NAME, NAME_LENGTH, ROWS, TEXTS, NULLS, MINIMUM, MAXIMUM, LAST_SEEN, ABSENT, DEFAULT, DEFAULT_LENGTH = (
    range(12)
)
COLUMN_WORDS = 16
"""ROWS: the address of the words, of which the first lies before the first row. TEXTS: of the text.
NULLS: of a byte for each row, 1 for null; 0: it may not be null. MINIMUM, MAXIMUM: of INTEGER the range,
MAXIMUM of FLOAT the bits of the largest absolute value. LAST_SEEN: the position of the value that had it
last, -1 at first. ABSENT: what a row without the field gets; DEFAULT: the word, for TEXT the text's
address, DEFAULT_LENGTH its length."""

IS_ODD, IS_NULL, IS_DEFAULT = range(3)


@kernel
def read_value(at: int, end: int, column: int, row: int) -> int:
    """Reads the value here into the column's row."""
    before = load_int64(column + 8 * ROWS) + 8 * row  # the address of the word of the row before
    kind = load_int64(column + 8 * KIND)
    first = load_uint8(at)
    if first == N:
        nulls = load_int64(column + 8 * NULLS)
        if nulls == 0 or load_int32(at) != NULL:
            return ODD
        _write_null(before, kind, nulls + row)
        return at + 4
    if kind == TEXT:
        return _read_text(at + 1, end, load_int64(column + 8 * TEXTS), before) if first == QUOTE else ODD
    if kind == INTEGER:
        return _read_integer(at, column, before)
    if kind == FLOAT:
        return _read_float(at, column, before)
    if first == T and load_int32(at) == TRUE:
        store_int64(before + 8, 1)
        return at + 4
    if first == F and load_int32(at + 1) == AFTER_F:
        store_int64(before + 8, 0)
        return at + 5
    return ODD


@kernel
def _read_integer(at: int, column: int, before: int) -> int:
    is_negative = load_uint8(at) == MINUS
    start = at + 1 if is_negative else at
    at, number = read_digits(start, int(np.int64(0)))
    digits = at - start
    if digits == 0 or digits > DIGITS_MAX or number < 0 or (digits > 1 and load_uint8(start) == ZERO):
        return ODD
    if is_negative:
        number = -number
    if number < load_int64(column + 8 * MINIMUM) or number > load_int64(column + 8 * MAXIMUM):
        return ODD
    store_int64(before + 8, number)
    return at


@kernel
def _read_float(at: int, column: int, before: int) -> int:
    is_negative = load_uint8(at) == MINUS
    start = at + 1 if is_negative else at
    at, mantissa = read_digits(start, int(np.int64(0)))
    digits = at - start
    power = 0
    if digits == 0 or (digits > 1 and load_uint8(start) == ZERO):
        return ODD
    if load_uint8(at) == DOT:
        at, mantissa = read_digits(at + 1, mantissa)
        power = start + digits + 1 - at
        digits -= power
        if power == 0:
            return ODD
    if load_uint8(at) | LOWER == E:
        at, exponent = read_exponent(at + 1)
        power += exponent
    if at == ODD or digits > DIGITS_MAX or mantissa < 0 or (is_negative and mantissa == 0):
        return ODD
    number = decimal_to_float(mantissa, power)
    if not number <= float_of_bits(load_int64(column + 8 * MAXIMUM)):  # NaN: it takes more to round it
        return ODD
    store_int64(before + 8, bits_of_float(-number if is_negative else number))
    return at


@kernel
def _read_text(at: int, end: int, texts: int, before: int) -> int:
    """Copies while it searches; escapes are resolved, what is above ASCII is checked at the end."""
    begin = target = texts + load_int64(before)
    beyond_ascii = 0
    while at < end:
        mask = text_stops(at)
        copy_block(target, at)
        length = min(trailing_zeros(mask & STOPS), BLOCK)
        beyond_ascii |= mask & (((1 << length) - 1) << BLOCK)
        at += length
        target += length
        if length == BLOCK:
            continue
        stop = load_uint8(at)
        if stop == QUOTE:
            if beyond_ascii != 0 and not is_utf8(begin, target):
                return ODD
            store_int64(before + 8, load_int64(before) + target - begin)
            return at + 1
        if stop != BACKSLASH:
            return ODD
        at, point = read_escape(at)
        if at == ODD:
            return ODD
        target = write_utf8(target, point)
    return ODD


@kernel
def _write_null(before: int, kind: int, null: int) -> None:
    store_uint8(null, 1)
    store_int64(before + 8, load_int64(before) if kind == TEXT else 0)


@kernel
def forget_nulls(columns: int, width: int, row: int) -> None:
    """The row was not finished; the next value gets it."""
    for index in range(width):
        nulls = load_int64(columns + 8 * (index * COLUMN_WORDS + NULLS))
        if nulls != 0:
            store_uint8(nulls + row, 0)


@kernel
def fill_absent(columns: int, width: int, row: int, position: int) -> bool:
    """Fields that the value does not have; False if one of them must be there."""
    for index in range(width):
        column = columns + index * 8 * COLUMN_WORDS
        if load_int64(column + 8 * LAST_SEEN) == position:
            continue
        absent = load_int64(column + 8 * ABSENT)
        before = load_int64(column + 8 * ROWS) + 8 * row
        kind = load_int64(column + 8 * KIND)
        default = load_int64(column + 8 * DEFAULT)
        if absent == IS_ODD:
            return False
        if absent == IS_NULL:
            _write_null(before, kind, load_int64(column + 8 * NULLS) + row)
        elif kind == TEXT:
            length = load_int64(column + 8 * DEFAULT_LENGTH)
            copy_bytes(load_int64(column + 8 * TEXTS) + load_int64(before), default, length)
            store_int64(before + 8, load_int64(before) + length)
        else:
            store_int64(before + 8, default)
    return True
