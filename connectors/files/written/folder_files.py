"""FolderFiles: the calls of a file system with a rename that is atomic and replaces nothing: this machine's,
and HDFS."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

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


class HdfsFiles:
    """A FolderFiles: HDFS, by hdfs-native. A name is durable once a call has returned, and a file that is
    closed is on as many data nodes as the cluster's setting says (whose disks have it when they like:
    `dfs.datanode.synconclose`; the client has no call for it)."""

    keeps_prefixes = False  # how long a file is that is open there, only its writer knows

    def __init__(self, fs: Any) -> None:
        """`fs`: its fsspec file system."""
        self._fs = fs

    def make_folder(self, path: str) -> None:
        self._fs.makedirs(path, exist_ok=True)

    def names(self, folder: str) -> list[str]:
        try:
            return [str(path).rpartition("/")[2] for path in self._fs.ls(folder, detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(path))

    def create(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self._fs.open(path, "wb", overwrite=True))

    def flushed(self, file: BinaryIO) -> int:
        raise NotImplementedError("see keeps_prefixes")

    def make_durable(self, file: BinaryIO) -> None:
        raise NotImplementedError("see keeps_prefixes")

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def read(self, path: str) -> bytes:
        with self._fs.open(path, "rb") as file:
            return bytes(file.read())

    def copy(self, path: str, new: str, size: int) -> None:
        raise NotImplementedError("see keeps_prefixes")

    def rename(self, old: str, new: str) -> None:
        self._fs.mv(old, new, overwrite=False)

    def replace(self, old: str, new: str) -> None:
        self._fs.mv(old, new, overwrite=True)

    def size(self, path: str) -> int | None:
        try:
            return int(self._fs.size(path))
        except FileNotFoundError:
            return None

    def all_files(self, folder: str) -> list[str]:
        try:
            found = self._fs.find(folder)
        except FileNotFoundError:
            return []
        beginning = f"{folder.rstrip('/')}/"
        return [str(path)[str(path).index(beginning) + len(beginning) :] for path in found]

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def sync(self, folder: str) -> None:
        """It is, by the name node."""


def folders_of(paths: Sequence[str]) -> list[str]:
    """The folders that these files are in, each once."""
    return sorted({path.rpartition("/")[0] for path in paths})
