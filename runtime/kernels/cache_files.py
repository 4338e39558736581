"""Where compiled kernels are kept, so that processes which compile at once do no harm to each other."""

from __future__ import annotations

import hashlib
from typing import Any

from numba.core.caching import IndexDataCacheFile


class KernelFiles(IndexDataCacheFile):
    """One kernel's files: an index, and a file of code for each combination of types that it was called with.

    numba gives a file the next free number of the index that it has read. Two processes that compile one
    kernel for other types at the same time take the same number, and which code lies there, and which types
    the index names for it, is chance: from then on every process of the machine may run the code of other
    types, which reads integers as floating point numbers without a word. Here the name of a file says what
    is in it, and the index names no file that is not there. Two who write at once may lose an entry of the
    index, whose code is compiled once more.
    """

    def save(self, key: Any, data: Any) -> None:
        """Called by numba behind its compiler. `key`: the types, the processor and the kernel's bytecode."""
        digest = hashlib.sha256(repr(key).encode()).digest()
        name = self._data_name(int.from_bytes(digest[:8], "little"))
        self._save_data(name, data)
        overloads = self._load_index()
        overloads[key] = name
        self._save_index(overloads)


def keep_by_types(dispatcher: Any) -> None:
    """Have this dispatcher of numba's, made with `cache=True`, keep its code in KernelFiles."""
    cache = dispatcher._cache
    files = KernelFiles.__new__(KernelFiles)
    files.__dict__.update(cache._cache_file.__dict__)
    cache._cache_file = files
