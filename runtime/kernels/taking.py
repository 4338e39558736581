"""Texts by number out of an Arrow array, or of memory that looks like one. For kernels; needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.blocks import BLOCK
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.copying import copy_short
from onceflow.runtime.kernels.memory import prefetch

SLACK = BLOCK
_AHEAD = 24


@kernel
def measure_texts(bounds: Any, slots: Any, new_bounds: Any) -> int:
    """Write into `new_bounds`, one more than slots, where these texts begin and end when they lie one after
    the other, the first where new_bounds[0] says; returns the end of the last. If that is more than the type
    of `new_bounds` holds, they are wrong."""
    bounds_at, last = np.int64(bounds.ctypes.data), len(slots) - 1
    end = int(new_bounds[0])
    for i in range(len(slots)):
        prefetch(bounds_at + bounds.itemsize * slots[min(i + _AHEAD, last)])
        end += int(bounds[slots[i] + 1]) - int(bounds[slots[i]])
        new_bounds[i + 1] = end
    return end


@kernel
def copy_texts(bounds: Any, data: int, data_end: int, slots: Any, new_bounds: Any, new_data: int) -> None:
    """Copy these texts from the address `data` to `new_data`. Nothing is read from `data_end` on; SLACK bytes
    behind all texts may be overwritten."""
    last = len(slots) - 1
    for i in range(len(slots)):
        prefetch(data + int(bounds[slots[min(i + _AHEAD, last)]]))
        length = int(new_bounds[i + 1]) - int(new_bounds[i])
        copy_short(new_data + int(new_bounds[i]), data + int(bounds[slots[i]]), length, data_end)


@kernel
def place_texts(
    bounds: Any, data: int, data_end: int, slots: Any, new_bounds: Any, new_data: int, room: int
) -> int:
    """Measure and copy these texts in one pass; -1 if the last text would end behind the first `room` bytes
    from `new_data` on. SLACK more may be overwritten."""
    last, end = len(slots) - 1, int(new_bounds[0])
    for i in range(len(slots)):
        ahead = slots[min(i + _AHEAD, last)]
        prefetch(data + int(bounds[ahead]))
        start = int(bounds[slots[i]])
        length = int(bounds[slots[i] + 1]) - start
        if end + length > room:
            return -1
        copy_short(new_data + end, data + start, length, data_end)
        end += length
        new_bounds[i + 1] = end
    return end
