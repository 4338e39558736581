"""A checkpoint store in this process's memory: for tests and the simulation."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable
from typing import BinaryIO

from onceflow.runtime.checkpoint.store import AlreadyExists, FileStatus


class MemoryStore:
    """Lives as long as the object; `memory:` URLs with the same name share one."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._files: dict[str, bytes] = {}

    def describe(self, path: str = "") -> str:
        return f"memory:{self._name}/{path}"

    def create(self, path: str, content: bytes) -> None:
        with self._lock:
            if path in self._files:
                raise AlreadyExists(f"{self.describe(path)} exists")
            self._files[path] = content

    def create_file(self, path: str) -> BinaryIO:
        self.create(path, b"")
        return _MemoryFile(self._files, path)

    def write_copy(self, path: str, content: bytes) -> None:
        with self._lock:
            self._files[path] = content

    def read(self, path: str) -> bytes:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(self.describe(path)) from None

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def list(self, folder: str) -> list[FileStatus]:
        prefix = folder.rstrip("/") + "/" if folder else ""
        with self._lock:
            return [
                FileStatus(path, len(content), 0)
                for path, content in self._files.items()
                if path.startswith(prefix)
            ]

    def delete(self, paths: Iterable[str]) -> None:
        with self._lock:
            for path in paths:
                self._files.pop(path, None)


class _MemoryFile(io.BytesIO):
    """Puts its content into the store when it is closed."""

    def __init__(self, files: dict[str, bytes], path: str) -> None:
        super().__init__()
        self._files = files
        self._path = path

    def close(self) -> None:
        if not self.closed:
            self._files[self._path] = self.getvalue()
        super().close()
