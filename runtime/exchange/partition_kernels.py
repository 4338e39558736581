"""The loop of Partitioner, compiled. Needs numba: see kernels/compiled.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.counting_sort import sort_counted

_HALF = np.uint64(32)


@kernel
def order_by_owner(key_hash: Any, owner: Any, owners: Any, order: Any, ends: Any) -> None:
    """Write into `order` the rows by the subtask that owns them, each subtask's in their order, and into
    `ends`, which is zeros, where each subtask's rows end. `owner` is the subtask by key group; `owners` is
    room for one number per row."""
    groups = np.uint64(len(owner))
    for row in range(len(key_hash)):
        subtask = owner[int(((key_hash[row] >> _HALF) * groups) >> _HALF)]
        owners[row] = subtask
        ends[subtask] += 1
    sort_counted(owners, 0, ends, order)
