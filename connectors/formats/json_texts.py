"""The bytes of a batch's JSON values, and what NumPy finds in all of them at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Int64s, Mask

QUOTE, BACKSLASH, SPACE = 0x22, 0x5C, 0x20
_WORD = 8
_ONES, _HIGHS, _ONE = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(1)
_BITS_OF_PLACE = 3
_WORDS_MAX = 4
"""So far a byte is looked for a word at a time; for those further away all such bytes are found."""
_COUNTED_MAX = 64
"""Values that are counted one by one."""


class Memory:
    """What the values of a batch are copied to, kept for the next batch: memory that is new costs more than
    all that is done with it."""

    def __init__(self) -> None:
        self.texts = bytearray()
        self.marks: Mask = np.zeros(0, np.bool_)

    def reserve(self, size: int) -> None:
        if size > len(self.texts):
            self.texts = bytearray(size + size // 4)
            self.marks = np.zeros(len(self.texts), np.bool_)


class Texts:
    """Values one behind the other. Places count from the first byte of the first value."""

    def __init__(self, array: pa.Array, memory: Memory, ahead: int) -> None:
        """`array`: binary or large_binary; what is null counts as some text. `memory`: in use as long as
        this is. `ahead`: for how many bytes `at` may be asked where the last value ends."""
        _, offsets, data = array.buffers()
        width: type[np.int64 | np.int32] = np.int64 if array.type == pa.large_binary() else np.int32
        bounds = np.frombuffer(offsets, width)[array.offset :][: len(array) + 1].astype(np.int64)
        first, self._size = int(bounds[0]), int(bounds[-1] - bounds[0])
        self.begins, self.ends = bounds[:-1] - first, bounds[1:] - first
        memory.reserve(self._size + max(_WORD, ahead))
        self._bytes = memory.texts
        self._memory = np.frombuffer(memory.texts, np.uint8)
        self._used, self._marks = self._memory[: self._size], memory.marks
        if data is not None:
            self._used[:] = np.frombuffer(data, np.uint8)[first : first + self._size]
        # As signed numbers bytes beyond ASCII are the lowest, so one look finds them and control characters.
        self._lowest = int(self._used.view(np.int8).min()) if self._size else SPACE
        self.is_ascii = self._lowest >= 0
        self._places: dict[int, Int64s] = {}

    def at(self, places: Int64s, length: int) -> npt.NDArray[np.void]:
        """What lies at these places, as one thing of so many bytes each."""
        count = len(self._memory) - length + 1
        return np.ndarray((count,), f"V{length}", self._memory, strides=(1,))[places]

    def marks(self, size: int) -> Mask:
        """Room for so many, until the next call."""
        return self._marks[:size] if size <= len(self._marks) else np.empty(size, np.bool_)

    def pieces(self, begins: Int64s, ends: Int64s) -> pa.Array:
        """What lies there, one value at least, copied to strings that are not known to be UTF-8."""
        # The even entries of an array over all of the memory, whose odd ones are what lies between them.
        count = len(begins)
        bounds = np.empty(2 * count, np.int32)
        bounds[0::2] = begins
        bounds[1::2] = ends
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._bytes)]
        entries = pa.Array.from_buffers(pa.string(), 2 * count - 1, buffers)
        return entries.take(pa.array(np.arange(0, 2 * count, 2)))

    def unusual(self) -> Mask | None:
        """Values with backslashes or control characters; None: there are none."""
        has_control = self._lowest < SPACE and int(self._used.min()) < SPACE
        if not has_control and self._bytes.find(BACKSLASH, 0, self._size) < 0:
            return None
        return self._with_one_of((self._used == BACKSLASH) | (self._used < SPACE))

    def with_quotes(self, rows: Int64s, quotes: int) -> Mask | None:
        """Which of these values, none of them empty, have so many quotes; None: all. None has fewer."""
        is_quote = np.equal(self._used, QUOTE, out=self.marks(self._size))
        others = len(self.begins) - len(rows)
        if others <= _COUNTED_MAX:
            is_other = np.ones(len(self.begins), np.bool_)
            is_other[rows] = False
            total = np.count_nonzero(is_quote)
            for begin, end in zip(self.begins[is_other].tolist(), self.ends[is_other].tolist(), strict=True):
                total -= np.count_nonzero(is_quote[begin:end])
            if total == quotes * len(rows):
                return None
        # An empty value is counted as its neighbour's first byte.
        padded = np.append(is_quote, False).view(np.uint8)
        return np.asarray(np.add.reduceat(padded, self.begins, dtype=np.int64)[rows] == quotes)

    def find(self, byte: int, begins: Int64s) -> Int64s:
        """The next places of this byte, from these places on; beyond the last value where there is none."""
        found, is_missing = self._in_word(byte, begins)
        rows = np.flatnonzero(is_missing)
        for _ in range(_WORDS_MAX - 1):
            if not len(rows):
                return found
            found[rows], is_missing = self._in_word(byte, np.minimum(found[rows], self._size))
            rows = rows[is_missing]
        if byte not in self._places:
            self._places[byte] = np.append(np.flatnonzero(self._used == byte), self._size + 1)
        every = self._places[byte]
        found[rows] = every[np.searchsorted(every, np.minimum(found[rows], self._size))]
        return found

    def _in_word(self, byte: int, begins: Int64s) -> tuple[Int64s, Mask]:
        """Where it is in the word that begins here, or where the word ends and it is not in it."""
        words = self.at(begins, _WORD).view("<u8") ^ np.uint64(byte * int(_ONES))
        # The lowest bit of these is in the first byte that is zero.
        hits = (words - _ONES) & ~words & _HIGHS
        before = np.bitwise_count(~hits & (hits - _ONE)) >> _BITS_OF_PLACE
        return begins + before, hits == 0

    def _with_one_of(self, is_one: Mask) -> Mask:
        found = np.zeros(len(self.begins), np.bool_)
        found[np.searchsorted(self.ends, np.flatnonzero(is_one), "right")] = True
        return found
