"""CheckpointStore: files with a conditional create, so that only one attempt can complete a checkpoint.

All safety against two drivers rests on `create`: it makes a file that was not there, whole or not at
all, for one caller only. A file system is offered when that is proven for it (the suite in
`runtime/testing/conformance/`); the others are refused by name in `store_url.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from onceflow.runtime.errors import OnceflowError


class AlreadyExists(OnceflowError):
    """Somebody has created this file before; nothing was changed."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file of a listing; `path` is relative to the store's root."""

    path: str
    size: int
    modified_ms: int


class CheckpointStore(Protocol):
    """A folder, on whatever file system. Paths are relative, with `/`. Safe to call from any thread."""

    def describe(self, path: str = "") -> str:
        """The path as a user finds it, for messages."""
        ...

    def create(self, path: str, content: bytes) -> None:
        """Make this file, durably, if it is not there: whole or not at all, one caller wins.

        Raises AlreadyExists (nothing changed), Retryable (it was not created), Indeterminate (ask by
        `read`). Once it has returned every later `read` and `list`, from anywhere, sees the file.
        """
        ...

    def create_file(self, path: str) -> BinaryIO:
        """A new file, open for writing; closing makes it durable. Not atomic: nobody reads it before a
        manifest names it. Raises AlreadyExists."""
        ...

    def write_copy(self, path: str, content: bytes) -> None:
        """A second copy of what is durable elsewhere (`copies.py`); replaces what is there. It need not
        be atomic, nor outlive a power cut: whoever reads it has a checksum. Raises OSError."""
        ...

    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading, seekable. Raises FileNotFoundError."""
        ...

    def list(self, folder: str) -> list[FileStatus]:
        """The files below this folder, at any depth; [] if there is none."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error."""
        ...
