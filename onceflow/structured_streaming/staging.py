"""Folder: the few calls that staging needs of a file system, by fsspec: local, S3, GCS, ABFS, HDFS, ...

URLs are Spark's (`file:/x`, `s3a://bucket/x`, `hdfs://host/x`); what is not local needs the package that
fsspec names (s3fs, gcsfs, adlfs).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from fsspec.core import url_to_fs

from onceflow.runtime.checkpoint.durable_file import DurableFile
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.store import AlreadyExists
from onceflow.runtime.errors import CorruptCheckpointError, OnceflowError, Retryable, UsageError

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, there or not. Picklable: it opens what it needs when it is asked."""

    url: str

    @staticmethod
    def at(url: str) -> Folder:
        """A path without a scheme is a local one, from the working directory on."""
        return Folder(url.rstrip("/") if ":" in url.split("/", 1)[0] else os.path.abspath(url))

    def child(self, name: str) -> Folder:
        return Folder(f"{self.url}/{name}")

    def read(self, name: str) -> bytes | None:
        """A small file; None if it is not there. Never an old answer."""

        def call() -> bytes | None:
            try:
                return bytes(self._fs.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

        return self._try(f"read {name}", call)

    def put(self, name: str, content: bytes) -> None:
        """A small file, whole or not at all; replaces the one that is there."""

        def call() -> None:
            fs = self._fs
            fs.makedirs(self._path(), exist_ok=True)
            if _is_local(fs):
                temporary = self._path(f".{name}.{os.getpid()}")
                fs.pipe_file(temporary, content)
                os.replace(temporary, self._path(name))
            else:
                fs.pipe_file(self._path(name), content)

        self._try(f"write {name}", call)

    def names(self) -> list[str]:
        """The names of what is directly in the folder; [] if it is not there."""

        def call() -> list[str]:
            fs = self._fs
            fs.invalidate_cache()
            try:
                found = fs.ls(self._path(), detail=False)
            except FileNotFoundError:
                return []
            return sorted(str(path).rstrip("/").rsplit("/", 1)[1] for path in found)

        return self._try("list it", call)

    def create(self, name: str) -> tuple[str, BinaryIO]:
        """See contracts.StagedFiles; the caller's name must be new."""

        def call() -> BinaryIO:
            self._fs.makedirs(self._path(), exist_ok=True)
            file: BinaryIO = self._fs.open(self._path(name), "wb")
            return file

        return name, self._try(f"create {name}", call)

    def create_durable(self, name: str) -> tuple[str, BinaryIO]:
        """A new file, as `create` makes it; once it is closed, what was written is there after a power cut,
        too."""
        path = self._path(name)
        if not _is_local(self._fs):
            return self.create(name)

        def call() -> BinaryIO:
            os.makedirs(self._path(), exist_ok=True)
            return cast(BinaryIO, DurableFile(Path(path)))

        return name, self._try(f"create {name}", call)

    def put_once(self, name: str, content: bytes) -> bool:
        """A small file, whole and durable, if there is none of this name. False: there is one. Two callers at
        once: one of them gets True. On stores of objects that rests on fsspec's `mode="create"`."""

        def call() -> bool:
            fs, path = self._fs, self._path(name)
            try:
                if _is_local(fs):
                    LocalStore(self._path()).create(name, content)
                else:
                    fs.pipe_file(path, content, mode="create")
            except (AlreadyExists, FileExistsError):
                return False
            return True

        return self._try(f"create {name}", call)

    def open(self, path: str) -> BinaryIO:
        """See contracts.StagedFiles."""

        def call() -> BinaryIO:
            try:
                file: BinaryIO = self._fs.open(self._path(path), "rb")
            except FileNotFoundError as e:
                raise CorruptCheckpointError(f"{self._path(path)} is not there") from e
            return file

        return self._try(f"open {path}", call)

    def delete(self, name: str) -> None:
        """A file, or a folder with all in it; one that is not there is no error."""

        self._try(f"delete {name}", lambda: self._remove(self._path(name)))

    def delete_all(self) -> None:
        """The folder itself; one that is not there is no error."""
        self._try("delete it", lambda: self._remove(self._path()))

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(path, recursive=True)

    def _path(self, name: str = "") -> str:
        fs_path = url_to_fs(self.url)[1]
        return f"{fs_path}/{name}" if name else str(fs_path)

    @property
    def _fs(self) -> Any:
        try:
            return url_to_fs(self.url)[0]
        except (ImportError, ValueError) as e:
            raise UsageError(f"folder {self.url} can't be used: {e}") from e

    def _try(self, action: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except OnceflowError:
            raise
        except Exception as e:  # packages of fsspec have errors of their own: no credentials, no such bucket
            raise Retryable(f"can't {action} in folder {self.url}: {e}") from e


def _is_local(fs: Any) -> bool:
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    return bool(protocol in ("file", "local"))
