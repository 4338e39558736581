"""FolderFiles: the calls of a file system with a rename that is atomic and replaces nothing; and this
machine's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from onceflow.runtime.errors import DataLossError, Unavailable

_BUFFER_BYTES = 1 << 20


class FolderFiles(Protocol):
    """Paths are absolute, with `/`."""

    keeps_prefixes: bool
    """Whether `flushed` works."""

    def make_folder(self, path: str) -> None:
        """Make it, and those above it; it may be there."""
        ...

    def names(self, folder: str) -> list[str]:
        """What is in it; [] if there is no such folder."""
        ...

    def exists(self, path: str) -> bool: ...

    def create(self, path: str) -> BinaryIO:
        """A new file to write to; replaces what is there."""
        ...

    def flushed(self, file: BinaryIO) -> int:
        """Hand what was written to the file system; the position behind it."""
        ...

    def make_durable(self, file: BinaryIO) -> None:
        """What was handed over outlives a power cut; the file stays open."""
        ...

    def finish(self, file: BinaryIO) -> None:
        """Durable, and closed."""
        ...

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def copy(self, path: str, new: str, size: int) -> None:
        """The first bytes of a file as a durable one; replaces what is there. Raises DataLossError if there
        are fewer."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Raises FileNotFoundError, FileExistsError."""
        ...

    def replace(self, old: str, new: str) -> None:
        """Rename, in one step, over what has the new name."""
        ...

    def size(self, path: str) -> int | None:
        """How many bytes a file has; None: there is none."""
        ...

    def all_files(self, folder: str) -> list[str]:
        """The files in a folder and below it, by their paths from there."""
        ...

    def delete(self, path: str) -> None:
        """One that is not there is no error."""
        ...

    def sync(self, folder: str) -> None:
        """Which names a folder has outlives a power cut."""
        ...


class LocalFiles:
    """A FolderFiles: the file systems of this machine, and those that are mounted here."""

    keeps_prefixes = True

    def make_folder(self, path: str) -> None:
        missing: list[Path] = []
        folder = Path(path)
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        try:
            os.makedirs(path, exist_ok=True)
        except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise Unavailable(
                f"no files can be written to {path}: {error.filename} can't be made ({error.strerror}): give "
                "to_files() or FileSink a folder that this user can write"
            ) from error
        for made in missing:
            self.sync(str(made.parent))

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def create(self, path: str) -> BinaryIO:
        return open(path, "wb", buffering=_BUFFER_BYTES)

    def flushed(self, file: BinaryIO) -> int:
        file.flush()
        return file.tell()

    def make_durable(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())

    def finish(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def copy(self, path: str, new: str, size: int) -> None:
        with open(path, "rb") as source, open(new, "wb") as copy:
            left = size
            while left and (content := source.read(min(left, _BUFFER_BYTES))):
                copy.write(content)
                left -= len(content)
            if left:
                raise DataLossError(
                    f"{path} has {size - left} bytes, and a checkpoint has {size} of it: somebody else has "
                    "written to the hidden folder; start anew with another checkpoint folder"
                )
            copy.flush()
            os.fsync(copy.fileno())

    def rename(self, old: str, new: str) -> None:
        # No call of Python's replaces nothing; the names are ours alone, so nobody makes one in between.
        if os.path.lexists(new) and os.path.lexists(old):
            raise FileExistsError(new)
        os.rename(old, new)

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new)

    def size(self, path: str) -> int | None:
        try:
            return os.path.getsize(path)
        except FileNotFoundError:
            return None

    def all_files(self, folder: str) -> list[str]:
        return [
            os.path.relpath(os.path.join(where, name), folder)
            for where, _, names in os.walk(folder)
            for name in names
        ]

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def sync(self, folder: str) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def folders_of(paths: Sequence[str]) -> list[str]:
    """The folders that these files are in, each once."""
    return sorted({path.rpartition("/")[0] for path in paths})
