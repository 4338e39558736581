"""The key groups that a subtask owns: contiguous ranges, stable under rescaling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onceflow.runtime.records import UInt64s

_HIGH = np.uint64(32)


KEY_GROUPS_MAX = 1 << 15
"""The most key groups that there can be: each row that is kept has the number of its own in 16 bits."""


def can_be_max_parallelism(given: object) -> bool:
    """Whether it can be the number of key groups."""
    return isinstance(given, int) and 1 <= given <= KEY_GROUPS_MAX


def key_group_range(max_parallelism: int, parallelism: int, subtask: int) -> range:
    """The key groups of this subtask: [ceil(i*M/p), ceil((i+1)*M/p)); together they cover 0..M-1 once.

    The inverse is `subtask_of_key_group`. Needs 1 <= parallelism <= max_parallelism.
    """
    assert 0 <= subtask < parallelism <= max_parallelism, (subtask, parallelism, max_parallelism)
    start = -(-subtask * max_parallelism // parallelism)
    end = -(-(subtask + 1) * max_parallelism // parallelism)
    return range(start, end)


def subtask_of_key_group(max_parallelism: int, parallelism: int, key_group: int) -> int:
    """The subtask whose range holds this key group."""
    assert 0 <= key_group < max_parallelism, (key_group, max_parallelism)
    return key_group * parallelism // max_parallelism


def key_groups_of(key_hash: UInt64s, max_parallelism: int) -> npt.NDArray[np.uint16]:
    """The key group of each hash: part of the state format, like the hash itself.

    Taken from the high 32 bits (Lemire's reduction), so a key group is a contiguous range of hashes;
    indexes take the low bits.
    """
    return (((key_hash >> _HIGH) * np.uint64(max_parallelism)) >> _HIGH).astype(np.uint16)
