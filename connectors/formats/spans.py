"""Spans: values where they lie among other bytes, such as Kafka's records; not copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, Mask

BINARY_BYTES_MAX = int(np.iinfo(np.int32).max)
"""The most bytes of a binary column; more make it large_binary."""
READ_AHEAD = 1 << 10
"""If so many bytes can be read behind the last value, most of those who look ahead need no copy of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Spans(Sequence[bytes | None]):
    """Who makes it does not write to `content` as long as somebody has it, or an array that lies there."""

    content: npt.NDArray[np.uint8]
    at: Int64s
    """Where each begins; ascending, none in another."""
    lengths: Int64s
    """-1: it is not there."""

    def __len__(self) -> int:
        return len(self.at)

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...

    @overload
    def __getitem__(self, index: slice) -> Spans: ...

    def __getitem__(self, index: int | slice) -> bytes | Spans | None:
        at, length = self.at[index], self.lengths[index]
        if isinstance(index, slice):
            return Spans(self.content, at, length)
        return None if length < 0 else self.content[at : at + length].tobytes()

    def take(self, rows: Indices) -> Spans:
        """`rows`: ascending."""
        return Spans(self.content, self.at[rows], self.lengths[rows])

    def ends(self) -> Int64s:
        """Where each ends; where it begins if it is not there."""
        return self.at + np.maximum(self.lengths, 0)

    def is_null(self) -> Mask | None:
        """Which values are not there; None: all are."""
        found: Mask = self.lengths < 0
        return found if found.any() else None

    def to_binary(self) -> pa.Array:
        """A copy: binary, or large_binary if it is more than BINARY_BYTES_MAX."""
        count = len(self)
        if not count:
            return pa.array([], pa.binary())
        ends, is_null = self.ends(), self.is_null()
        fits = len(self.content) <= BINARY_BYTES_MAX
        found = between(self.content, self.at, ends, pa.binary() if fits else pa.large_binary())
        if is_null is not None:
            valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
            found = pa.Array.from_buffers(found.type, count, [valid, *found.buffers()[1:]])
        large = int((ends - self.at).sum()) > BINARY_BYTES_MAX
        return found if large != fits else found.cast(pa.large_binary() if large else pa.binary())


def between(content: Any, begins: Int64s, ends: Int64s, arrow: pa.DataType) -> pa.Array:
    """A copy of what lies from each of these places, of which there is one at least, to the other, one behind
    the other. `content`: of the buffer protocol. `arrow`: binary or string, or large if there may be more
    than BINARY_BYTES_MAX before the last one's end."""
    # The even entries of an array over all of the content, whose odd ones are what lies between them.
    count = len(begins)
    is_large = arrow in (pa.large_binary(), pa.large_string())
    bounds: npt.NDArray[np.int32 | np.int64] = np.empty(2 * count, np.int64 if is_large else np.int32)
    bounds[0::2] = begins
    bounds[1::2] = ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(content)]
    entries = pa.Array.from_buffers(arrow, 2 * count - 1, buffers)
    return entries.take(pa.array(np.arange(0, 2 * count, 2)))
