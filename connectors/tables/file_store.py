"""FileStore: the storage under a table, where data files are written before a commit names them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow.fs as pafs


@dataclass(frozen=True, slots=True)
class FileStore:
    """Paths are relative to the table's folder, with "/"."""

    fs: pafs.FileSystem
    root: str
    """The table's folder in `fs`; "": `fs` begins there."""
    local: Path | None
    """The same folder, if it is on this machine: files are forced to the disk then."""

    def create(self, path: str) -> BinaryIO:
        """A new file. Nobody may rely on it before `finish`. Raises OSError."""
        if self.local is not None:
            target = self.local / path
            target.parent.mkdir(parents=True, exist_ok=True)
            return open(target, "wb")
        return cast(BinaryIO, self.fs.open_output_stream(self._place(path)))

    def finish(self, file: BinaryIO) -> None:
        """Make a file durable. Raises OSError."""
        if self.local is None:
            file.close()
            return
        with file:
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(Path(file.name).parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def open(self, path: str) -> BinaryIO:
        """A file to be read from any place. Raises OSError, FileNotFoundError if it is not there."""
        if self.local is not None:
            return open(self.local / path, "rb")
        return cast(BinaryIO, self.fs.open_input_file(self._place(path)))

    def size(self, path: str) -> int | None:
        """The bytes of a file; None: it is not there. Raises OSError."""
        info = self.fs.get_file_info(self._place(path))
        return info.size if info.type == pafs.FileType.File else None

    def names(self, folder: str) -> list[str]:
        """The names of what is directly in a folder, in their order; of one that is not there, none."""
        selector = pafs.FileSelector(self._place(folder), allow_not_found=True)
        return sorted(info.base_name for info in self.fs.get_file_info(selector))

    def delete(self, path: str) -> None:
        """Raises OSError, also if it is not there."""
        self.fs.delete_file(self._place(path))

    def _place(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path
