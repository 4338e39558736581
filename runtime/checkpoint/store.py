"""CheckpointStore: files with a conditional create, so that only one attempt can complete a checkpoint.

All safety against two drivers rests on `create`: it makes a file that was not there, whole or not at
all, for one caller only. A file system is offered when that is proven for it: by the suite in
`runtime/testing/conformance/`, and for a DistantStore by a race at each start (`create_proof.py`). The
others are refused by name in `store_url.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

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


@runtime_checkable
class DistantStore(CheckpointStore, Protocol):
    """A store behind a network, where each call takes its time and a create has to be proven."""

    def read_all(self, paths: Iterable[str]) -> Mapping[str, bytes]:
        """Read these files, many at once; by path, those that are there. Raises OSError."""
        ...

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        """These bytes of a file, by one request for them; fewer if the file ends before. Raises
        FileNotFoundError; OSError."""
        ...

    def abandon_uploads(self, is_left: Callable[[str], bool]) -> None:
        """Give back the room that files take whose writer was killed before it closed them, for each path of
        which `is_left` says so. Raises OSError."""
        ...
