"""Where the values of an Arrow array of texts, bytes or lists begin and end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def offsets_of(array: Any) -> npt.NDArray[Any]:
    """The offsets of such an array, one more than it has values: int64 of a large type, else int32. A view
    that can't be written to: nothing is copied, and what they count in is the array's own memory, also if it
    is a slice of a longer one. A null's two offsets say nothing of it."""
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    dtype: Any = np.int64 if is_large or pa.types.is_large_list(array.type) else np.int32
    if len(array):
        start = np.dtype(dtype).itemsize * array.offset
        offsets = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, offset=start)
    else:  # its buffer may be missing
        offsets = np.zeros(1, dtype)
    offsets.flags.writeable = False  # always, so that kernels are compiled for one kind of array
    return offsets
