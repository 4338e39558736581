"""RecycledMemory: memory for bytes that are made and dropped all the time, used again and again.

A sink makes a hundred megabytes of output in a second and drops them at the next commit. In between an
allocator gives such memory back to the system, and to get it anew costs more than to write to it: its pages
are cleared, and on a virtual machine the host may have to find them first (benchmarks/notes).
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

BLOCK_BYTES = 8 << 20
KEPT_MS = 10_000.0
"""How long a block is kept unused: longer than a checkpoint interval, so that it is there for the next."""
_ALIGNMENT = 64
"""The alignment in bytes that Arrow wants for its buffers."""
_REFERENCES_OF_NOBODY = 2
"""The references to an array that only its block has: that one, and the argument of the question. A view is
one more."""


class Memory(Protocol):
    """Where bytes are put whose number is known only when they are there. One thread."""

    def reserve(self, most: int) -> Bytes:
        """Memory of at least so many bytes to write to, which is nobody's yet: `claim` it before the next
        call."""
        ...

    def claim(self, size: int) -> Bytes:
        """The first `size` of the bytes reserved last. They are the caller's as long as there is a view of
        them, or an Arrow buffer over one, on whichever thread. Their address is a multiple of 8."""
        ...


class NewMemory:
    """Memory of its own for each claim."""

    def __init__(self) -> None:
        self._reserved = np.empty(0, np.uint8)

    def reserve(self, most: int) -> Bytes:
        self._reserved = np.empty(most, np.uint8)
        return self._reserved

    def claim(self, size: int) -> Bytes:
        claimed, self._reserved = self._reserved[:size], self._reserved[:0]
        return claimed


class _Block:
    """Bytes are claimed from the front on, until there is no room; then all of it is waited for."""

    def __init__(self) -> None:
        self.memory = np.empty(BLOCK_BYTES, np.uint8)
        self.idle_since_ms: float | None = None
        """The first time that `let_go` found it free; None: it was in use since."""

    @property
    def is_free(self) -> bool:
        """Whether nobody has any of its bytes."""
        return sys.getrefcount(self.memory) <= _REFERENCES_OF_NOBODY


class RecycledMemory:
    """Memory: bytes one behind the other in blocks. A block is used again once nobody has bytes of it.
    More than fit into a block have memory of their own."""

    def __init__(self) -> None:
        self._block = _Block()
        self._used = 0
        """How many bytes of the block are filled."""
        self._others: deque[_Block] = deque()
        """The one that was left first is first: so its bytes are the oldest."""
        self._large: Bytes | None = None
        """What was reserved last, if it is not in the block."""

    def reserve(self, most: int) -> Bytes:
        self._large = None
        if most > BLOCK_BYTES:
            self._large = np.empty(most, np.uint8)
            return self._large
        if self._block.is_free:
            self._used = 0
        elif most > BLOCK_BYTES - self._used:
            self._leave_block()
        return self._block.memory[self._used :]

    def claim(self, size: int) -> Bytes:
        if self._large is not None:
            claimed, self._large = self._large[:size], None
            return claimed
        start, end = self._used, self._used + size
        self._used = min(BLOCK_BYTES, -(-end // _ALIGNMENT) * _ALIGNMENT)
        return self._block.memory[start:end]

    def let_go(self, now_ms: float) -> None:
        """From time to time: gives the system what nobody needed for KEPT_MS."""
        kept: deque[_Block] = deque()
        for block in self._others:
            if not block.is_free:
                block.idle_since_ms = None
            elif block.idle_since_ms is None:
                block.idle_since_ms = now_ms
            elif now_ms - block.idle_since_ms >= KEPT_MS:
                continue
            kept.append(block)
        self._others = kept

    def _leave_block(self) -> None:
        self._others.append(self._block)
        self._block = self._others.popleft() if self._others[0].is_free else _Block()
        self._block.idle_since_ms = None
        self._used = 0
