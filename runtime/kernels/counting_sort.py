"""Rows by a small number that each of them has, in one pass. For kernels; needs numba."""

from __future__ import annotations

from typing import Any

from onceflow.runtime.kernels.compiled import kernel


@kernel
def count(numbers: Any, lowest: int, counts: Any) -> None:
    """Adds to counts[i] how many rows have the number lowest + i."""
    for row in range(len(numbers)):
        counts[int(numbers[row]) - lowest] += 1


@kernel
def sort_counted(numbers: Any, lowest: int, ends: Any, order: Any) -> None:
    """Write into `order` the rows by their number, those of one number in their order. ends[i]: how many rows
    have the number lowest + i; after, where in `order` they end."""
    first = 0
    for i in range(len(ends)):
        first, ends[i] = first + ends[i], first
    for row in range(len(numbers)):
        i = int(numbers[row]) - lowest
        order[ends[i]] = row
        ends[i] += 1
