"""HdfsFiles: a FolderFiles of HDFS."""

from __future__ import annotations

import contextlib
from typing import Any, BinaryIO, cast

from onceflow.runtime.errors import Unavailable


class Asked:
    """A file system of hdfs-native, or a file of it, whose methods raise Unavailable where the client has no
    error of its own: no data node takes a block, a name node is in safe mode. The client raises RuntimeError
    then, as if the program were wrong; such things pass, and are waited for."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        def asked(*arguments: Any, **options: Any) -> Any:
            try:
                return method(*arguments, **options)
            except RuntimeError as error:
                first = str(error).partition("\n")[0]
                raise Unavailable(f"HDFS: {name}: {first}; it is tried again") from error

        return asked


class HdfsFiles:
    """A FolderFiles: HDFS, by hdfs-native. A name is durable once a call has returned, and a file that is
    closed is on as many data nodes as the cluster's setting says (whose disks have it when they like:
    `dfs.datanode.synconclose`; the client has no call for it)."""

    keeps_prefixes = False  # how long a file is that is open there, only its writer knows

    def __init__(self, fs: Any) -> None:
        """`fs`: its fsspec file system."""
        self._fs: Any = Asked(fs)

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
        return cast(BinaryIO, Asked(self._fs.open(path, "wb", overwrite=True)))

    def flushed(self, file: BinaryIO) -> int:
        raise NotImplementedError("see keeps_prefixes")

    def make_durable(self, file: BinaryIO) -> None:
        raise NotImplementedError("see keeps_prefixes")

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def read(self, path: str) -> bytes:
        with contextlib.closing(self._fs.open(path, "rb")) as file:
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
