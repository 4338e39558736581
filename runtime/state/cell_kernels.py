"""The loops of cells.py, compiled. Needs numba: see kernels/compiled.py.

The cell of a row some rows ahead is asked for while this one is changed.
"""

from __future__ import annotations

from typing import Any

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import prefetch

_AHEAD = 24


@kernel
def add_at(cells: Any, slots: Any, values: Any) -> None:
    """cells[slot] += value for each row, in their order."""
    cells_at, rows = int(cells.ctypes.data), len(slots)
    for row in range(rows):
        prefetch(cells_at + cells.itemsize * slots[min(row + _AHEAD, rows - 1)])
        cells[slots[row]] += values[row]


@kernel
def count_at(cells: Any, slots: Any) -> None:
    """cells[slot] += 1 for each row."""
    cells_at, rows = int(cells.ctypes.data), len(slots)
    for row in range(rows):
        prefetch(cells_at + cells.itemsize * slots[min(row + _AHEAD, rows - 1)])
        cells[slots[row]] += 1


@kernel
def mark_at(flags: Any, slots: Any) -> None:
    """flags[slot] = True for each row."""
    for row in range(len(slots)):
        flags[slots[row]] = True
