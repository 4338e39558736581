"""The loops of cells.py, compiled. Needs numba: see kernels/compiled.py.

The cell of an item some items ahead is asked for while this one is changed.
"""

from __future__ import annotations

from typing import Any

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import prefetch

_AHEAD = 24


@kernel
def add_at(cells: Any, rows: Any, values: Any) -> None:
    """cells[row] += value for each item, in their order."""
    cells_at, items = int(cells.ctypes.data), len(rows)
    for item in range(items):
        prefetch(cells_at + cells.itemsize * rows[min(item + _AHEAD, items - 1)])
        cells[rows[item]] += values[item]


@kernel
def count_at(cells: Any, rows: Any) -> None:
    """cells[row] += 1 for each item."""
    cells_at, items = int(cells.ctypes.data), len(rows)
    for item in range(items):
        prefetch(cells_at + cells.itemsize * rows[min(item + _AHEAD, items - 1)])
        cells[rows[item]] += 1


@kernel
def mark_at(flags: Any, rows: Any) -> None:
    """flags[row] = True for each item."""
    for item in range(len(rows)):
        flags[rows[item]] = True
