"""The bytes of a batch's JSON values, and what NumPy finds in all of them at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.spans import Spans, between
from onceflow.runtime.arrow_offsets import offsets_of
from onceflow.runtime.records import Int64s, Mask

_WORD = 8
_ONES, _HIGHS, _ONE = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(1)
_BITS_OF_PLACE = 3
_WORDS_MAX = 4
"""So far a byte is looked for a word at a time; for those further away all such bytes are found."""


class Memory:
    """What a batch takes, kept for the next one: memory that is new costs more than all that is done with
    it."""

    def __init__(self) -> None:
        self.texts = np.zeros(0, np.uint8)


class Texts:
    """Values among other bytes, in which they lie one behind the other."""

    def __init__(self, values: pa.Array | Spans, memory: Memory, ahead: int) -> None:
        """`values`: if an array, binary or large_binary; what is null counts as some text. `memory`: in use
        as long as this is. `ahead`: for how many bytes `at` may be asked where the last value ends."""
        self._memory = memory
        ahead = max(_WORD, ahead)
        if isinstance(values, Spans):
            if len(values) and values.at[-1] + values.lengths[-1] + ahead > len(values.content):
                values = values.to_binary()
            else:
                self.begins, self.ends, self._content = values.at, values.ends(), values.content
        if not isinstance(values, Spans):
            self._copy(values, ahead)
        self._first = int(self.begins[0]) if len(self.begins) else 0
        self._last = int(self.ends[-1]) if len(self.ends) else 0
        self._places: dict[int, Int64s] = {}

    def _copy(self, values: pa.Array, ahead: int) -> None:
        bounds = offsets_of(values).astype(np.int64)
        first, size = int(bounds[0]), int(bounds[-1] - bounds[0])
        if size + ahead > len(self._memory.texts):
            self._memory.texts = np.zeros((size + ahead) * 5 // 4, np.uint8)
        self._content = self._memory.texts
        self.begins, self.ends = bounds[:-1] - first, bounds[1:] - first
        data = values.buffers()[2]
        if data is not None:
            self._content[:size] = np.frombuffer(data, np.uint8)[first : first + size]

    def at(self, places: Int64s, length: int) -> npt.NDArray[np.void]:
        """What lies at these places, as one thing of so many bytes each."""
        count = len(self._content) - length + 1
        return np.ndarray((count,), f"V{length}", self._content, strides=(1,))[places]

    def pieces(self, begins: Int64s, ends: Int64s) -> pa.Array:
        """What lies there, one value at least, copied to strings that are not known to be UTF-8."""
        return between(self._content, begins, ends, pa.string())

    def find(self, byte: int, begins: Int64s) -> Int64s:
        """The next places of this byte, from these places on; beyond the last value where there is none."""
        found, is_missing = self._in_word(byte, begins)
        rows = np.flatnonzero(is_missing)
        for _ in range(_WORDS_MAX - 1):
            if not len(rows):
                return found
            found[rows], is_missing = self._in_word(byte, np.minimum(found[rows], self._last))
            rows = rows[is_missing]
        if byte not in self._places:
            is_byte = self._content[self._first : self._last] == byte
            self._places[byte] = np.append(np.flatnonzero(is_byte) + self._first, self._last + 1)
        every = self._places[byte]
        found[rows] = every[np.searchsorted(every, np.minimum(found[rows], self._last))]
        return found

    def _in_word(self, byte: int, begins: Int64s) -> tuple[Int64s, Mask]:
        """Where it is in the word that begins here, or where the word ends and it is not in it."""
        words = self.at(begins, _WORD).view("<u8") ^ np.uint64(byte * int(_ONES))
        # The lowest bit of these is in the first byte that is zero.
        hits = (words - _ONES) & ~words & _HIGHS
        before = np.bitwise_count(~hits & (hits - _ONE)) >> _BITS_OF_PLACE
        return begins + before, hits == 0
