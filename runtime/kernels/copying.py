"""Copies of few bytes, for kernels. Needs numba.

A call of memcpy for a length that the compiler does not know costs more than the copy of a short text. Where
there is room on both sides a whole block is copied instead: one load and one store.
"""

from __future__ import annotations

from onceflow.runtime.kernels.blocks import BLOCK, copy_block
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import copy_bytes


@kernel
def copy_short(target: int, source: int, count: int, source_end: int) -> None:
    """Copy as copy_bytes does, for what is mostly short. Reads nothing from `source_end` on; BLOCK bytes from
    `target` on may be overwritten, also those behind the copy. The areas lie a block apart."""
    if count <= BLOCK and source + BLOCK <= source_end:
        copy_block(target, source)
    else:
        copy_bytes(target, source, count)
