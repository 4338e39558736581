"""The JSON decoder's kernel: objects to columns, as long as they are plain.

`decode_rows` walks over the values and writes what the wanted columns need. It knows two outcomes: a
value is decoded, exactly as JsonDecoder would, or it is odd, and somebody else has to look at it. Odd is
whatever is wrong, and whatever is right but rare. So nothing here has a reason to give, and a test that
holds both decoders against each other is a test of all of it.

Positions are addresses; a function that moves one returns the new position, or ODD. It may go beyond the
value's end, though not far: who called it finds that odd.

Records of one topic look alike. `shape` keeps the text between two values (`,"amount":`) as it was in the
records before, and which column comes after it: one comparison finds the next value. Other text is read
as the grammar says, and kept in its place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onceflow.connectors.formats.json.compiled.skip_kernels import (
    BACKSLASH,
    CLOSE_OBJECT,
    COMMA,
    ODD,
    OPEN_OBJECT,
    SPACE,
    STOPS,
    skip_name,
    skip_space,
    skip_value,
)  # fmt: skip
from onceflow.connectors.formats.json.compiled.value_kernels import (
    COLUMN_WORDS,
    LAST_SEEN,
    NAME,
    NAME_LENGTH,
    fill_absent,
    forget_nulls,
    read_value,
)  # fmt: skip
from onceflow.runtime.kernels.blocks import BLOCK, copy_block, equal_bytes, store_int64, trailing_zeros
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import load_int64, load_uint8

READ_BEHIND = 4 * BLOCK
"""How far behind a value's end memory must be readable; what is there decides nothing."""

# A shape: for each field, what comes before its value and which column that is for.
_FIELDS_MAX = 256
_MUST_EQUAL, _LENGTH, _COLUMN, _TEXT, _FIELD_BYTES = 0, 8, 16, 32, 64
_NEVER = 1 << BLOCK
_NO_COLUMN, _END = -1, -2
_LOOK_AHEAD = 4


def empty_shape() -> npt.NDArray[np.int64]:
    """A shape that knows no field."""
    shape = np.zeros((_FIELDS_MAX, _FIELD_BYTES // 8), np.int64)
    shape[:, _MUST_EQUAL // 8] = _NEVER
    return shape


@kernel
def decode_rows(
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    is_null: npt.NDArray[np.uint8],
    columns: npt.NDArray[np.int64],
    shape: npt.NDArray[np.int64],
    odd: npt.NDArray[np.int64],
) -> int:
    """Writes the rows of the plain values into the columns, in order, and the positions of the others to
    `odd`; how many are plain.

    `begins`, `ends`: the addresses of each value. `is_null`: 1 for a value that is not there; empty: all are.
    """
    # As int64, also the zeros: for words of other types everything would be compiled once more.
    columns_at, shape_at = int(np.int64(columns.ctypes.data)), int(np.int64(shape.ctypes.data))
    width, plain = len(columns), int(np.int64(0))
    for i in range(len(begins)):
        if len(is_null) > 0 and is_null[i] != 0:
            odd[i - plain] = i
        elif _record(begins[i], ends[i], columns_at, width, shape_at, plain, i):
            plain += 1
        else:
            odd[i - plain] = i
            forget_nulls(columns_at, width, plain)
    return plain


@kernel
def _record(at: int, end: int, columns: int, width: int, shape: int, row: int, position: int) -> bool:
    """Whether the value is plain; then its row is written."""
    field = found = int(np.int64(0))
    while field == 0 or load_uint8(at) != CLOSE_OBJECT:
        known = shape + field * _FIELD_BYTES
        must_equal = load_int64(known + _MUST_EQUAL)
        if equal_bytes(at, known + _TEXT) & must_equal != must_equal:
            field = _find_field(at, end, columns, width, shape, field)
            if field == ODD:
                return False
            if field == _END:
                at = skip_space(at, end)
                break
            known = shape + field * _FIELD_BYTES
        at += load_int64(known + _LENGTH)
        if load_uint8(at) <= SPACE:  # more than in the record before
            at = skip_space(at, end)
        index = load_int64(known + _COLUMN)
        if index == _NO_COLUMN:
            at = skip_value(at, end)
        else:
            column = columns + index * 8 * COLUMN_WORDS
            if load_int64(column + 8 * LAST_SEEN) == position:  # the name comes twice
                return False
            store_int64(column + 8 * LAST_SEEN, position)
            at = read_value(at, end, column, row)
            found += 1
        if at == ODD or at >= end:
            return False
        field = min(field + 1, _FIELDS_MAX - 1)
    if at + 1 != end and skip_space(at + 1, end) != end:
        return False
    return found == width or fill_absent(columns, width, row, position)


# --- Names ----------------------------------------------------------------------------------------


@kernel
def _find_field(at: int, end: int, columns: int, width: int, shape: int, field: int) -> int:
    """The field that comes next where another was expected, _END at the end of the object, or ODD.

    A few of the fields before may be left out this time. A field that is new takes the expected one's place.
    """
    if field > 0:
        for ahead in range(field + 1, min(field + _LOOK_AHEAD, _FIELDS_MAX)):
            known = shape + ahead * _FIELD_BYTES
            must_equal = load_int64(known + _MUST_EQUAL)
            if equal_bytes(at, known + _TEXT) & must_equal == must_equal:
                return ahead
    start = at
    at = skip_space(at, end)
    if field > 0 and load_uint8(at) == CLOSE_OBJECT:
        return _END
    if load_uint8(at) != (COMMA if field > 0 else OPEN_OBJECT):
        return ODD
    name = skip_space(at + 1, end) + 1
    at = skip_name(name - 1, end)
    if at == ODD or at >= end or _has_escape(name, at):
        return ODD
    known = shape + field * _FIELD_BYTES
    length = at - start
    store_int64(known + _MUST_EQUAL, (1 << length) - 1 if length <= BLOCK else _NEVER)
    store_int64(known + _LENGTH, length)
    store_int64(known + _COLUMN, _column_named(name, columns, width))
    copy_block(known + _TEXT, start)
    return field


@kernel
def _column_named(name: int, columns: int, width: int) -> int:
    """The column of the name that begins here and ends at a quote; _NO_COLUMN if nobody wants it."""
    for index in range(width):
        column = columns + index * 8 * COLUMN_WORDS
        wanted = load_int64(column + 8 * NAME)
        left = load_int64(column + 8 * NAME_LENGTH)  # with the quote
        at = name
        while left > BLOCK and equal_bytes(at, wanted) == STOPS:
            at += BLOCK
            wanted += BLOCK
            left -= BLOCK
        if left <= BLOCK and trailing_zeros(~equal_bytes(at, wanted)) >= left:
            return index
    return _NO_COLUMN


@kernel
def _has_escape(at: int, end: int) -> bool:
    """An escaped name may be one that is wanted."""
    while at < end and load_uint8(at) != BACKSLASH:
        at += 1
    return at < end
