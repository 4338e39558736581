"""DurableFile: a new file that is durable once it is closed; large ones are written past the page cache.

Snapshots and staged output are written once and hardly ever read. In the page cache they would take
memory that is new each time, which costs the writer more than all else about a large file. So blocks that
are full go straight to the disk (O_DIRECT, Linux), on a thread of their own: the caller only copies. Where
a file system has no such thing, and at the end of a file, they are written as usual.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fcntl
import functools
import mmap
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

BLOCK_BYTES = 2 << 20
_BLOCKS_MAX = 8
"""Full ones of a file that wait for the disk; and empty ones that are kept for the next file."""
_O_DIRECT = getattr(os, "O_DIRECT", 0)

_empty_blocks: deque[mmap.mmap] = deque(maxlen=_BLOCKS_MAX)


class DurableFile:
    """One thread writes and closes it. What was written is there after a power cut once `close` has
    returned. After an OSError, of `write` or of `close`, the file is of no use."""

    def __init__(self, path: Path, block_bytes: int = BLOCK_BYTES) -> None:
        """Raises FileExistsError. `block_bytes`: BLOCK_BYTES or less."""
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self.closed = False
        self._block_bytes = block_bytes
        self._block = _empty_block()
        self._filled = 0
        """How many bytes of the block are filled."""
        self._place = 0
        """Where in the file the block begins."""
        self._pending: deque[Future[None]] = deque()
        self._error: OSError | None = None
        """What failed on the disk's thread."""
        self._is_direct: bool | None = None
        """Whether blocks go past the page cache; None: not tried yet."""

    def write(self, data: bytes | memoryview) -> int:
        """Waits for the disk if it is far behind. May raise an OSError of an earlier write."""
        self._refuse_if_failed()
        content = memoryview(data).cast("B")
        size = len(content)
        done = 0
        while size - done >= self._block_bytes - self._filled:
            end = done + self._block_bytes - self._filled
            self._block[self._filled : self._block_bytes] = content[done:end]
            done = end
            self._hand_on()
        self._block[self._filled : self._filled + size - done] = content[done:]
        self._filled += size - done
        return size

    def tell(self) -> int:
        return self._place + self._filled

    def flush(self) -> None:
        """Nothing: what is not closed is not durable."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._finish()
        finally:
            concurrent.futures.wait(self._pending)  # a number that is closed may become another file's
            self._let_go()
        sync_folder(self._path.parent)

    def __enter__(self) -> DurableFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Blocks that wait for the disk keep the file alive, so here are none.
        if not getattr(self, "closed", True):
            self._let_go()

    def _hand_on(self) -> None:
        self._pending.append(_disk().submit(self._write_block, self._block, self._place))
        self._block, self._filled = _empty_block(), 0
        self._place += self._block_bytes
        self._settle_done()

    def _finish(self) -> None:
        self._refuse_if_failed()
        while self._pending:
            self._settle()
        if self._is_direct:
            self._set_direct(False)
        _write_at(self._descriptor, memoryview(self._block)[: self._filled], self._place)
        os.fsync(self._descriptor)

    def _settle_done(self) -> None:
        """Settle the writes that are done, and wait for the oldest of those that are too many."""
        self._refuse_if_failed()
        while self._pending and (len(self._pending) > _BLOCKS_MAX or self._pending[0].done()):
            self._settle()

    def _settle(self) -> None:
        """The oldest block: wait until it is written."""
        self._pending.popleft().result()

    def _refuse_if_failed(self) -> None:
        if self._error is not None:
            raise self._error

    def _let_go(self) -> None:
        self.closed = True
        os.close(self._descriptor)
        _empty_blocks.append(self._block)

    # --- On the disk's thread ---

    def _write_block(self, block: mmap.mmap, place: int) -> None:
        if self._is_direct is None:
            self._set_direct(True)
        content = memoryview(block)[: self._block_bytes]
        try:
            self._write_content(content, place)
        except OSError as error:
            self._error = error  # there at once for the next `write`
            raise
        finally:
            content.release()
            _empty_blocks.append(block)

    def _write_content(self, content: memoryview, place: int) -> None:
        try:
            _write_at(self._descriptor, content, place)
        except OSError as error:
            if not self._is_direct or error.errno != errno.EINVAL:
                raise
            self._set_direct(False)  # not so, says the file system
            _write_at(self._descriptor, content, place)

    def _set_direct(self, is_direct: bool) -> None:
        self._is_direct = False
        with contextlib.suppress(OSError):  # a file system that has no such thing
            flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & ~_O_DIRECT
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | _O_DIRECT if is_direct else flags)
            self._is_direct = is_direct and bool(_O_DIRECT)


def sync_folder(folder: Path) -> None:
    """Make durable which names the folder has."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_at(descriptor: int, content: memoryview, place: int) -> None:
    while len(content):
        written = os.pwrite(descriptor, content, place)
        content, place = content[written:], place + written


def _empty_block() -> mmap.mmap:
    """Aligned as O_DIRECT wants it."""
    try:
        return _empty_blocks.pop()
    except IndexError:
        return mmap.mmap(-1, BLOCK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@functools.cache
def _disk() -> ThreadPoolExecutor:
    """The disk's thread. It starts with the first block of this process."""
    return ThreadPoolExecutor(1, thread_name_prefix="onceflow-disk")
