"""Memory that nobody can read past: the page behind or before it is closed, and who tries is killed."""

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

    def put(content: bytes) -> pa.Buffer:
        memory[page - len(content) : page] = content
        return pa.foreign_buffer(start + page - len(content), len(content), memory)

    _protect(start + page, _CLOSED)
    try:
        yield put
    finally:
        _protect(start + page, _OPEN)


@contextlib.contextmanager
def behind_closed_page() -> Iterator[Callable[[bytes], pa.Buffer]]:
    """Like before_closed_page, but for the bytes right behind it."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def put(content: bytes) -> pa.Buffer:
        memory[page : page + len(content)] = content
        return pa.foreign_buffer(start + page, len(content), memory)

    _protect(start, _CLOSED)
    try:
        yield put
    finally:
        _protect(start, _OPEN)


def _protect(page: int, how: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), how) == 0


def array_of(values: Sequence[bytes], content: pa.Buffer, arrow: pa.DataType) -> pa.Array:
    """These values, one behind the other in `content`, as an array of some kind of text or bytes."""
    is_large = arrow in (pa.large_binary(), pa.large_string())
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64 if is_large else np.int32)
    return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(ends), content])
