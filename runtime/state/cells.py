"""Cells: numbers by row, changed by all rows of a batch, several of which may have the same row.

With kernels if they are on. `cells` and `rows` are arrays of their own, not every other place of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Indices, Int64s, Mask

_KERNEL_TYPES = (np.dtype(np.int64), np.dtype(np.float64))


def add_at(cells: npt.NDArray[Any], rows: Indices, values: npt.NDArray[Any]) -> None:
    """Add each row's value to the cell of its row, in the order of the rows; int64 wraps around."""
    if ops().are_compiled and values.dtype == cells.dtype in _KERNEL_TYPES:
        from onceflow.runtime.state import cell_kernels

        cell_kernels.add_at(cells, rows, values)
    else:
        np.add.at(cells, rows, values)


def count_at(cells: Int64s, rows: Indices) -> None:
    """Add 1 to the cell of each row's row."""
    if ops().are_compiled:
        from onceflow.runtime.state import cell_kernels

        cell_kernels.count_at(cells, rows)
    else:
        np.add.at(cells, rows, 1)


def mark_at(flags: Mask, rows: Indices) -> None:
    """Set the flag of each row's row."""
    if ops().are_compiled:
        from onceflow.runtime.state import cell_kernels

        cell_kernels.mark_at(flags, rows)
    else:
        flags[rows] = True


def compile_kernels() -> None:
    """Have the kernels of this file ready, so that no record waits for the compiler."""
    rows = np.zeros(1, np.int64)
    count_at(rows.copy(), rows)
    mark_at(np.zeros(1, np.bool_), rows)
    for dtype in _KERNEL_TYPES:
        values = np.zeros(1, dtype)
        add_at(values.copy(), rows, values)
        values.flags.writeable = False  # as those that lie in a batch, which are another type to numba
        add_at(values.copy(), rows, values)
