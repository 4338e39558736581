"""Many JSON values in one buffer, as lines, where it is certain that each line is one value's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

LINES_MIN = 64
"""Below it one buffer costs more than it saves."""
_BYTES_MAX = 1 << 30
_OPEN, _CLOSE = b"{}"


def as_lines(values: pa.Array) -> pa.Buffer | None:
    """All values with a newline between two; None if they are not of a kind for which this is safe.

    Safe: if a strict parser finds as many objects in it as there are values, each value is one of them.
    For each begins with `{` and ends with `}`. So where one value meets the next there is `}`, newline, `{`,
    and no object goes on over that: within a string there is no bare newline in JSON, and outside of one
    nothing but a comma or a closing bracket may follow a `}` inside an object. So each value is one or more
    whole objects, and as many as there are values means one each. A parser may take lines for mere space.
    """
    if values.type != pa.binary() or values.null_count or values.nbytes > _BYTES_MAX or not len(values):
        return None
    _, offsets, data = values.buffers()
    if data is None:
        return None
    bounds = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1]
    starts, ends = bounds[:-1], bounds[1:]
    if (starts == ends).any():
        return None
    content: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8)
    if (content.take(starts) != _OPEN).any() or (content.take(ends - 1) != _CLOSE).any():
        return None
    one = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    lines: pa.Buffer = pc.binary_join(one, b"\n")[0].as_buffer()
    return lines
