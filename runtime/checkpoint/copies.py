"""Second copies of what a checkpoint needs, below `copies/`, for when the first is damaged.

The log's entries, and files up to COPY_BYTES_MAX, are written twice; larger ones once. Copies are not
made durable by themselves: a crash of processes leaves them, a power cut may take the newest. Nothing is
lost then, since what they are copies of is durable before. In return they cost no wait for the disk, and
those that are deleted with their checkpoint within seconds never get there.

A copy is written after its original, and deleted before it. So where there is a copy, an original was
complete; and a checksum, which both have, says which of the two to believe.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import BinaryIO, cast

from onceflow.runtime.checkpoint.store import CheckpointStore

COPIES_FOLDER = "copies"
COPY_BYTES_MAX = 1 << 20


def copy_path(path: str) -> str:
    return f"{COPIES_FOLDER}/{path}"


def delete_with_copies(store: CheckpointStore, paths: Iterable[str]) -> None:
    paths = list(paths)
    store.delete(map(copy_path, paths))
    store.delete(paths)


def create_copied_file(store: CheckpointStore, path: str) -> BinaryIO:
    """Create a file as `store.create_file` does; a small one is there twice once it is closed."""
    return cast(BinaryIO, _CopiedFile(store, path))


class _CopiedFile:
    """One thread writes and closes it."""

    def __init__(self, store: CheckpointStore, path: str) -> None:
        self._store = store
        self._path = path
        self._file = store.create_file(path)
        self._content: bytearray | None = bytearray()
        """What was written so far; None: too much for a copy."""

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes | memoryview) -> int:
        written = self._file.write(data)
        if self._content is not None:
            if len(self._content) + written > COPY_BYTES_MAX:
                self._content = None
            else:
                self._content += data
        return written

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if self._file.closed:
            return
        self._file.close()
        if self._content is not None:
            # A crash before this line leaves a whole file without a copy.
            with contextlib.suppress(OSError):
                self._store.write_copy(copy_path(self._path), bytes(self._content))

    def __enter__(self) -> _CopiedFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._content = None
        self.close()
