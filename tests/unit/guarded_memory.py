"""Memory whose end nobody can read past: the page behind it is closed, and who tries is killed."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

_CLOSED, _OPEN = 0, mmap.PROT_READ | mmap.PROT_WRITE


@contextlib.contextmanager
def before_closed_page() -> Iterator[Callable[[bytes], pa.Buffer]]:
    """A function that puts up to a page of bytes right before the closed one. One buffer at a time."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)

    def protect(how: int) -> None:
        assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), how) == 0

    def put(content: bytes) -> pa.Buffer:
        memory[page - len(content) : page] = content
        return pa.foreign_buffer(start + page - len(content), len(content), memory)

    protect(_CLOSED)
    try:
        yield put
    finally:
        protect(_OPEN)


def array_of(values: Sequence[bytes], content: pa.Buffer, arrow: pa.DataType) -> pa.Array:
    """These values, one behind the other in `content`, as an array of some kind of text or bytes."""
    is_large = arrow in (pa.large_binary(), pa.large_string())
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64 if is_large else np.int32)
    return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(ends), content])
