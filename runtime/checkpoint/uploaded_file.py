"""UploadedFile: a new file of an object store, there once it is closed; small ones in one call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

SMALL_BYTES = 16 << 20
"""Up to here a file is kept in memory and put at once, which can be tried again; a larger one is sent in
parts while it is written."""


class UploadedFile:
    """One thread writes and closes it. After an OSError, of `write` or of `close`, nothing is there."""

    def __init__(
        self,
        put: Callable[[bytes], Any],
        open_large: Callable[[], Any],
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        """`put`: make the file with this content; `open_large`: a file of fsspec, open for writing."""
        self._put = put
        self._open_large = open_large
        self._small_bytes = small_bytes
        self._content = bytearray()
        self._large: Any = None
        self._size = 0
        self._has_failed = False
        self.closed = False

    def write(self, data: bytes | memoryview) -> int:
        """Waits for the store if the file is large. Raises OSError."""
        content = memoryview(data).cast("B")
        self._size += len(content)
        if self._large is None and len(self._content) + len(content) <= self._small_bytes:
            self._content += content
            return len(content)
        with self._failing():
            if self._large is None:
                self._large = self._open_large()
                self._large.write(bytes(self._content))
                self._content = bytearray()
            self._large.write(content)
        return len(content)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing: what is not closed is not there."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Make it durable. Raises OSError."""
        if self.closed:
            return
        self.closed = True
        if self._has_failed:
            return
        with self._failing():
            if self._large is None:
                self._put(bytes(self._content))
            else:
                self._large.close()

    @contextlib.contextmanager
    def _failing(self) -> Any:
        """Whatever the store's library raises is an OSError, and the end of the file."""
        try:
            yield
        except Exception as error:
            self._has_failed = True
            if self._large is not None:
                with contextlib.suppress(Exception):
                    self._large.discard()
            if isinstance(error, OSError):
                raise
            raise OSError(str(error) or type(error).__name__) from error

    def __enter__(self) -> UploadedFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._has_failed |= kind is not None
        self.close()
