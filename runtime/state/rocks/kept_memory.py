"""KeptMemory: what allocators keep of memory that was let go of, given back: it would be beside the bound."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pyarrow as pa

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""The C library's, where it has one: glibc's keeps the holes that were values of rows."""
_EVERY = 4
"""How often it is due: it takes some milliseconds, in proportion to the memory that there is."""


class KeptMemory:
    """One thread."""

    def __init__(self, trim: Callable[[int], object] | None = _TRIM) -> None:
        """`trim`: called with 0, it gives back what the C library keeps; None: it has no such call."""
        self._trim = trim
        self._calls = 0

    def give_back(self) -> None:
        """Have this thread's part of Arrow's pool give back what is free, and now and then the C library."""
        pa.default_memory_pool().release_unused()
        self._calls += 1
        if self._calls % _EVERY == 0 and self._trim is not None:
            self._trim(0)
