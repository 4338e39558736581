"""Where Kafka's records begin, by whole arrays.

Each record begins with its length, so that where one begins shows only when all before it are known. But
nearly every record ends with a zero, no headers, and has another one behind its length, no attributes: where
zeros are so far apart a record may begin. Whether it does show the lengths: followed from the first record
on they must lead from one guess to the next, to the end of the bytes. Where they don't, records are walked
one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from onceflow.connectors.kafka.wire import ProtocolError
from onceflow.runtime.records import Indices, Int64s, Mask

_LENGTH_BYTES_MAX = 4
_BLOCK = 128 << 10
"""Bytes that are looked at at once: what comes of them stays in the processor's cache."""
_BITS_OF_BYTE, _BITS = 7, 64
_ONE = np.uint64(1)

Bytes = npt.NDArray[np.uint8]


def find_starts(content: Bytes, bounds: Sequence[int], counts: Sequence[int]) -> tuple[Int64s, Int64s]:
    """Of each record where it goes on behind its length, and where it ends. See find_records."""
    end, count = bounds[-1], sum(counts)
    for guess in (_as_the_first, _by_zeros):
        starts = guess(content, bounds)
        length, at = varints(content, starts)
        after = at + length
        if len(starts) > count:  # zeros within a record looked like its end
            is_outside = np.append(True, starts[1:] >= np.maximum.accumulate(after[:-1]))
            starts, at, after = (column[is_outside] for column in (starts, at, after))
        if len(starts) > count:
            follows = starts.take(np.searchsorted(starts, after), mode="clip")
            leads_on = (follows == after) | (after == end)
            starts, at, after = (column[leads_on] for column in (starts, at, after))
        if _is_chain(starts, after, bounds, counts):
            return at, after
    starts = _walked(content, bounds, counts)
    length, at = varints(content, starts)
    return at, at + length


def varints(content: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    """The numbers at these places, and the places behind them. Raises ProtocolError for one of more than 64
    bits."""
    byte = content.take(at)
    is_more = byte > 0x7F
    after = at + 1
    if not is_more.any():
        return (byte >> 1).astype(np.int64) ^ -(byte & 1).astype(np.int64), after
    second = content.take(after) * is_more  # nothing where there is no more
    after += is_more
    is_more = second > 0x7F
    short = (byte & 0x7F) | (second & 0x7F).astype(np.int16) << _BITS_OF_BYTE
    if not is_more.any():
        return ((short >> 1) ^ -(short & 1)).astype(np.int64), after
    number = short.astype(np.uint64)
    for shift in range(2 * _BITS_OF_BYTE, _BITS, _BITS_OF_BYTE):
        byte = content.take(after) * is_more
        number |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after += is_more
        is_more = byte > 0x7F
        if not is_more.any():
            break
    check(~is_more)
    return (number >> _ONE).view(np.int64) ^ -(number & _ONE).view(np.int64), after


def check(holds: Mask) -> None:
    """Raises ProtocolError if it does not for all."""
    if not holds.all():
        raise _malformed()


def _as_the_first(content: Bytes, bounds: Sequence[int]) -> Indices:
    """Where records may begin if all have lengths as wide as that of the first one."""
    width = 1
    while content[bounds[0] + width - 1] > 0x7F and width < _LENGTH_BYTES_MAX:
        width += 1
    found = []
    for begin in range(0, bounds[-1], _BLOCK):
        is_zero = content[begin : min(begin + _BLOCK + width + 1, bounds[-1])] == 0
        found.append(np.flatnonzero(is_zero[: -width - 1] & is_zero[width + 1 :]) + (begin + 1))
    return np.concatenate(found)


def _by_zeros(content: Bytes, bounds: Sequence[int]) -> Indices:
    """Where records may begin."""
    zeros = np.flatnonzero(content[: bounds[-1]] == 0)
    widths = zeros[1:] - zeros[:-1] - 1
    return zeros[:-1][(widths >= 1) & (widths <= _LENGTH_BYTES_MAX)] + 1


def _is_chain(starts: Indices, after: Int64s, bounds: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether the records, so many in each section, follow one on the other from first to last."""
    if len(starts) != sum(counts) or not len(starts):
        return False
    firsts = np.cumsum([0, *counts[:-1]])
    is_section = starts.take(firsts, mode="clip") == bounds[:-1]
    return bool(after[-1] == bounds[-1] and (after[:-1] == starts[1:]).all() and is_section.all())


def _walked(content: Bytes, bounds: Sequence[int], counts: Sequence[int]) -> Indices:
    """Where records begin, one by one."""
    data = content.data
    starts: list[int] = []
    for (at, stop), count in zip(itertools.pairwise(bounds), counts, strict=True):
        for _ in range(count):
            starts.append(at)
            number = shift = 0
            while at < stop:
                byte = data[at]
                at += 1
                number |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += _BITS_OF_BYTE
            if number & 1 or not 0 < number >> 1 <= stop - at:
                raise _malformed()
            at += number >> 1
        if at != stop:
            raise _malformed()
    return np.array(starts, np.int64)


def _malformed() -> ProtocolError:
    return ProtocolError("records are not as version 2 has them")
