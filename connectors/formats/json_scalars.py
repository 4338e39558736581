"""Scalars of all values of a batch into Arrow arrays, and which of them are odd.

Odd is what is no JSON, what the column can't hold, and what is right but rare: JsonDecoder can tell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.json_shape import NUMBER, TEXT, WORD
from onceflow.runtime.records import Mask

_MINUS, _POINT, _ZERO = 0x2D, 0x2E, 0x30
_QUOTE, _BACKSLASH, _SPACE, _ASCII_MAX = 0x22, 0x5C, 0x20, 0x7F
_DIGITS_MAX = 18
"""Of an integer: so many always fit into 64 bits."""
_WORDS = pa.array(["true", "false", "null"])
_DECIMAL_MAX = 40
"""Of another number, with its point: what is longer may be more than 32 bits of a float hold."""


def kind_of(arrow: pa.DataType) -> int:
    """What a scalar must be for a column of this type; see `has_plain_types`."""
    if pa.types.is_boolean(arrow):
        return WORD
    return NUMBER if pa.types.is_integer(arrow) or pa.types.is_floating(arrow) else TEXT


def odd_scalars(kind: int, pieces: pa.Array) -> Mask | None:
    """Of what no column needs: in which rows it is odd; None: in none."""
    if kind == TEXT:
        return _odd_texts(*_content(pieces))
    if kind == NUMBER:
        return _odd_numbers(pieces, is_integer=False)
    return _not_among(pieces, _WORDS)


def read_scalars(arrow: pa.DataType, pieces: pa.Array) -> tuple[pa.Array, Mask | None]:
    """A column of this type, or in which rows its scalar is odd; then to be asked again without those.

    `pieces`: strings, not known to be UTF-8.
    """
    kind = kind_of(arrow)
    if kind == TEXT:
        content, ends = _content(pieces)
        odd = _odd_texts(content, ends)
        if odd is None and len(content) and int(content.max()) > _ASCII_MAX:
            odd = _not_utf8(pieces)
        return pieces if odd is not None else _as(pieces, arrow), odd
    if kind == WORD:
        return pc.equal(pieces, _WORDS[0]), _not_among(pieces, _WORDS[:2])
    is_integer = pa.types.is_integer(arrow)
    odd = _odd_numbers(pieces, is_integer)
    if odd is not None:
        return pieces, odd
    numbers = pieces.cast(pa.int64() if is_integer else pa.float64())
    odd = _beyond(numbers, arrow)
    return numbers if odd is not None else _as(numbers, arrow), odd


def _content(pieces: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The bytes of all pieces, one behind the other, and where each ends."""
    _, offsets, data = pieces.buffers()
    ends = np.frombuffer(offsets, np.int32)[1 : len(pieces) + 1]
    return np.frombuffer(data, np.uint8)[: ends[-1]], ends


def _odd_texts(content: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32]) -> Mask | None:
    """With quotes, backslashes or control characters. `ends`: of each in the content."""
    # As signed numbers bytes beyond ASCII are the lowest of all.
    lowest = int(content.view(np.int8).min(initial=_SPACE))
    is_odd = (content == _QUOTE) | (content == _BACKSLASH)
    if lowest < _SPACE:
        is_odd |= content < _SPACE
    if not is_odd.any():
        return None
    found = np.zeros(len(ends), np.bool_)
    found[np.searchsorted(ends, np.flatnonzero(is_odd), "right")] = True
    return found


def _not_utf8(pieces: pa.Array) -> Mask | None:
    """Of strings, which are not; None: all are."""
    content = pieces.view(pa.binary())
    try:
        content.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([not _is_utf8(piece) for piece in content.to_pylist()])
    return None


def _is_utf8(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    return array if array.type == arrow else array.cast(arrow)


def _not_among(pieces: pa.Array, words: pa.Array) -> Mask | None:
    is_one = np.asarray(pc.is_in(pieces, words), np.bool_)
    return None if is_one.all() else np.logical_not(is_one)


def _odd_numbers(pieces: pa.Array, is_integer: bool) -> Mask | None:
    """All but -?(0|[1-9][0-9]*), and for other than integers a fraction behind it."""
    _, offsets, data = pieces.buffers()
    bounds = np.frombuffer(offsets, np.int32)
    content = np.frombuffer(data, np.uint8)[: bounds[len(pieces)]]
    begins, ends = bounds[: len(pieces)], bounds[1 : len(pieces) + 1]
    digits = ends - begins
    odd: Mask = digits == 0
    if odd.any():
        return odd
    is_digit = content - np.uint8(_ZERO) < 10
    starts_with = content.take(begins)
    if is_digit.all() and digits.max() <= _DIGITS_MAX and int(starts_with.min()) > _ZERO:
        return None
    firsts = begins + (starts_with == _MINUS)  # of the digits
    has_point = np.zeros(len(pieces), np.bool_)
    if not is_digit.all():
        places = np.flatnonzero(~is_digit)
        rows = np.searchsorted(ends, places, "right")
        is_sign = places < firsts[rows]
        is_point = (content[places] == _POINT) & (places > firsts[rows]) & (places < ends[rows] - 1)
        odd[rows[~(is_sign | is_point) if not is_integer else ~is_sign]] = True
        with_point = rows[is_point]
        has_point[with_point] = True
        odd[with_point[1:][with_point[1:] == with_point[:-1]]] = True
    digits = ends - firsts
    odd |= digits > np.where(has_point, _DECIMAL_MAX, _DIGITS_MAX)
    # Nothing behind the sign; a zero before other digits; and the zero with a sign, which floats have.
    seconds = np.minimum(firsts + 1, ends - 1)
    is_zero = content.take(np.minimum(firsts, ends - 1)) == _ZERO
    odd |= (digits == 0) | (is_zero & (digits > 1) & is_digit.take(seconds))
    if not is_integer:
        odd |= is_zero & (digits == 1) & (firsts > begins)
    return odd if odd.any() else None


def _beyond(wide: pa.Array, arrow: pa.DataType) -> Mask | None:
    """Numbers that the column's type can't hold."""
    if arrow == pa.int64() or not pa.types.is_integer(arrow):
        return None
    numbers: Any = wide.to_numpy()
    held = np.iinfo(arrow.to_pandas_dtype())
    odd = (numbers < held.min) | (numbers > min(held.max, np.iinfo(np.int64).max))
    return odd if odd.any() else None
