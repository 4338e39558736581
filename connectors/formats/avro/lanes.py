"""Many datums at a time: where a walk over them is, and what it reads of all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Int64s, Mask

PADDING = 16
"""Bytes that have to be readable after the last datum."""

_U = np.uint64
_CONTINUED = _U(0x8080808080808080)
_INT32_MAX = (1 << 31) - 1


@dataclass(slots=True)
class Lanes:
    """Where the walk is in each of some datums, where each ends, and whether there was no surprise."""

    at: Int64s
    end: Int64s
    is_sure: Mask

    def part(self, rows: Int64s) -> Lanes:
        return Lanes(self.at[rows], self.end[rows], self.is_sure[rows])

    def put_back(self, rows: Int64s, part: Lanes) -> None:
        self.at[rows] = part.at
        self.is_sure[rows] = part.is_sure

    def doubt(self, rows: Mask) -> None:
        """These are left where they can do no harm: at their end."""
        self.is_sure &= ~rows
        np.copyto(self.at, self.end, where=rows)

    def check(self) -> None:
        """Called after each step: what went beyond its datum's end is in doubt, and back at that end."""
        beyond = self.at > self.end
        if beyond.any():
            self.doubt(beyond)


class Datums:
    """Datums that lie in one buffer, in order; `data` is readable for PADDING bytes more."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self.data = data
        self.words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        """The eight bytes from any position on."""
        self._buffer = pa.py_buffer(data)
        self._binary = pa.binary() if len(data) <= _INT32_MAX else pa.large_binary()

    def varints(self, lanes: Lanes) -> Int64s:
        """The next zigzag integer of each; in the place of those that go on for too long, anything."""
        first = self.data.take(lanes.at)
        if not len(first) or int(first.max()) < 0x80:  # nearly always so for lengths, indices and counts
            lanes.at += 1
            lanes.check()
            small = first.view(np.int8)
            return (small >> 1 ^ -(small & 1)).astype(np.int64)
        word = self.words[lanes.at]
        stop = ~word & _CONTINUED
        last = stop & (~stop + _U(1))  # the highest bit of the varint's last byte
        kept = last | (last - _U(1))
        word &= kept & ~_CONTINUED
        word = word & _U(0x007F007F007F007F) | (word & _U(0x7F007F007F007F00)) >> _U(1)
        word = word & _U(0x00003FFF00003FFF) | (word & _U(0x3FFF00003FFF0000)) >> _U(2)
        word = word & _U(0x000000000FFFFFFF) | (word & _U(0x0FFFFFFF00000000)) >> _U(4)
        size = np.bitwise_count(kept).astype(np.int64) >> 3
        if not stop.all():
            rows = np.flatnonzero(stop == 0)
            word[rows], size[rows] = self._long_varint(lanes.at[rows])
        lanes.at += size
        lanes.check()
        value: Int64s = (word >> _U(1) ^ ~(word & _U(1)) + _U(1)).view(np.int64)
        return value

    def _long_varint(self, at: Int64s) -> tuple[npt.NDArray[np.uint64], Int64s]:
        """Varints of nine bytes and more; what goes on after ten gets a size beyond any end."""
        value = np.zeros(len(at), _U)
        for i in range(8):
            value |= (self.data[at + i] & 0x7F).astype(_U) << _U(7 * i)
        ninth, tenth = self.data[at + 8], self.data[at + 9]
        value |= (ninth & 0x7F).astype(_U) << _U(56)
        is_ten = ninth >= 0x80
        value |= np.where(is_ten, (tenth & 0x7F).astype(_U) << _U(63), _U(0))
        size = np.where(is_ten, 10, 9)
        return value, np.where(is_ten & (tenth >= 0x80), 1 << 40, size)

    def sized(self, lanes: Lanes) -> tuple[Int64s, Int64s]:
        """Where the next text, or bytes, of each begins, and how long it is."""
        return self.taken(self.varints(lanes), lanes)

    def taken(self, size: Int64s, lanes: Lanes) -> tuple[Int64s, Int64s]:
        """The next so many bytes of each: where they begin, and how many there are (0 if doubtful)."""
        wrong = size.view(np.uint64) > (lanes.end - lanes.at).view(np.uint64)
        if wrong.any():
            lanes.doubt(wrong)
            size = np.where(wrong, 0, size)
        start = lanes.at.copy()
        lanes.at += size
        return start, size

    def pieces(self, start: Int64s, size: Int64s) -> pa.Array:
        """`size` bytes from each start, taken as every second value of an array over the whole buffer."""
        offsets = np.empty(2 * len(start), np.int32 if self._binary == pa.binary() else np.int64)
        offsets[::2] = start
        offsets[1::2] = start + size
        if not len(start):
            return pa.array([], self._binary)
        count = len(offsets) - 1
        whole = pa.Array.from_buffers(self._binary, count, [None, pa.py_buffer(offsets), self._buffer])
        return whole.take(pa.array(np.arange(0, count, 2, dtype=np.int32)))
