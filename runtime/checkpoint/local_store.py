"""A checkpoint store in a local folder, or in a shared one that has hard links (NFS)."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

from onceflow.runtime.checkpoint.durable_file import DurableFile, sync_folder
from onceflow.runtime.checkpoint.fingerprints import is_lasting
from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore, FileStatus
from onceflow.runtime.errors import Indeterminate, OptionError, Retryable, Unavailable

TEMPORARY_PREFIX = ".new-"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}


class LocalStore:
    """Conditional create is `link`: the kernel lets one caller win, and the file is whole before it has
    its name. Made durable by fsync of the file and of its folder."""

    def __init__(self, root: str) -> None:
        self._root = Path(root).absolute()

    def describe(self, path: str = "") -> str:
        return str(self._root / path) if path else str(self._root)

    def check_writable(self) -> None:
        """Make the folder, if it is not there. Raises OptionError if that, or a file in it, is not to be had
        however long one waits."""
        try:
            self._make_folder(self._root)
            with tempfile.TemporaryFile(dir=self._root):
                pass
        except OSError as error:
            if is_lasting(error):
                raise OptionError(
                    f"the checkpoint folder {self._root} can't be written ({error.strerror}: "
                    f"{error.filename}): give --checkpoint-dir, or checkpoint_dir= of job.run, a folder that "
                    "this user can write"
                ) from error

    def create(self, path: str, content: bytes) -> None:
        target = self._root / path
        temporary = target.with_name(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        try:
            # 1. Write it whole under a name of our own. A crash leaves a file that nobody reads.
            try:
                self._make_folder(target.parent)
                with temporary.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                kind = Unavailable if is_lasting(error) else Retryable
                raise kind(f"can't write {temporary}: {error}") from error
            # 2. Give it its name: the point of no return.
            self._link(temporary, target)
            # 3. Make the name durable. A failure here leaves open whether it survives a power cut.
            try:
                sync_folder(target.parent)
            except OSError as error:
                raise Indeterminate(f"can't make {target} durable: {error}") from error
        finally:
            with contextlib.suppress(OSError):  # never hides what went wrong; swept later
                temporary.unlink(missing_ok=True)

    def _link(self, temporary: Path, target: Path) -> None:
        try:
            os.link(temporary, target)
        except FileExistsError:
            # NFS can lose the reply and answer the resent call with "exists": two names mean it was us.
            if temporary.stat().st_nlink < 2:
                raise AlreadyExists(f"{target} exists") from None
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise OptionError(
                    f"the file system of {self._root} has no hard links, which checkpoints need so that "
                    "only one attempt can complete one: use another folder"
                ) from error
            raise Indeterminate(f"can't tell whether {target} was created: {error}") from error

    def create_file(self, path: str) -> BinaryIO:
        target = self._root / path
        self._make_folder(target.parent)
        try:
            return cast(BinaryIO, DurableFile(target))
        except FileExistsError:
            raise AlreadyExists(f"{target} exists") from None

    def link(self, source: CheckpointStore, path: str, new: str) -> bool:
        """Give a file of another folder, which nobody writes any more, a name here too: durable, and its own
        when the other one is deleted. False: that can't be, or there is no such file."""
        if not isinstance(source, LocalStore):
            return False
        target = self._root / new
        self._make_folder(target.parent)
        try:
            os.link(source._root / path, target)
        except OSError:  # another file system or another user's file, for the most part
            return False
        sync_folder(target.parent)
        return True

    def write_copy(self, path: str, content: bytes) -> None:
        target = self._root / path
        try:
            target.write_bytes(content)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def open(self, path: str) -> BinaryIO:
        return (self._root / path).open("rb")

    def list(self, folder: str) -> list[FileStatus]:
        found: list[FileStatus] = []

        def tell(error: OSError) -> None:
            """What can't be read is not empty; but a disk may have folders of others below its root."""
            is_asked_for = folder or error.filename == str(self._root)
            if is_asked_for and not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise error

        for parent, _, names in os.walk(self._root / folder, onerror=tell):
            for name in names:
                file = Path(parent, name)
                try:
                    status = file.stat()
                except FileNotFoundError:
                    continue  # deleted since
                relative = file.relative_to(self._root).as_posix()
                found.append(FileStatus(relative, status.st_size, status.st_mtime_ns // 1_000_000))
        return found

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:  # thousands at once: no Path of each
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self._root}/{path}")

    def remove_empty_folders(self, folder: str) -> None:
        """Remove what has no file in it, from this folder down and with it; "": the root itself as well."""
        for parent, _, _ in os.walk(self._root / folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(parent)

    def _make_folder(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(exist_ok=True)
            sync_folder(new.parent)
