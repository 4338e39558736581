"""HdfsCheckpointFiles: HDFS, which shows a file before it is whole, as RemoteStore needs it."""

from __future__ import annotations

import contextlib
import importlib
import io
import uuid
from typing import Any

from onceflow.runtime.checkpoint.local_store import TEMPORARY_PREFIX

SETTINGS = {"dfs.client.failover.max.attempts": "1", "dfs.client.failover.sleep.max.millis": "1000"}
"""hdfs-native asks a name node that is away for three minutes; RemoteStore asks again itself, and says so."""


class HdfsCheckpointFiles:
    """HDFS by the client of hdfs-native, with the names of fsspec and a conditional mode of `pipe_file`.

    HDFS lets one client create a name, and shows the file before it is written. So it is written under a
    name of its own and renamed: the name node lets one rename win, and the file is whole before it has its
    name (`rename` without overwrite in Hadoop's specification of its FileSystem). A writer that was killed
    leaves its temporary name, which the sweep of a later attempt deletes.

    The client is called directly: its file system for fsspec takes a path for a URL, and cuts it at `;`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def pipe_file(self, path: str, content: bytes, mode: str = "overwrite") -> None:
        """Make the file with this content; `mode="create"`: only if there is none, else FileExistsError.

        Raises OSError; of a create, FileNotFoundError and PermissionError only before the rename: then it
        is not done. A rename that finds no source may have been done by its own first try.
        """
        with _one_line():
            if mode != "create":
                self._write(path, content)
                return
            folder = path.rpartition("/")[0]
            temporary = f"{folder}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
            try:
                self._write(temporary, content)
                try:
                    self._client.rename(temporary, path, False)
                except (FileNotFoundError, PermissionError) as error:
                    raise OSError(f"its temporary file is not there any more: {error}") from error
            except BaseException:
                with contextlib.suppress(OSError):
                    self.rm_file(temporary)
                raise

    def open(self, path: str, mode: str, block_size: int = 0, **_: Any) -> Any:
        """A file, for reading in blocks of this size, or for writing."""
        with _one_line():
            if mode == "wb":
                return self._new(path)
            return io.BufferedReader(_Reading(self._client.read(path)), block_size)

    def cat_file(self, path: str) -> bytes:
        with _one_line():
            return bytes(self._client.read(path).read())

    def exists(self, path: str) -> bool:
        try:
            with _one_line():
                self._client.get_file_info(path)
        except FileNotFoundError:
            return False
        return True

    def find(self, path: str, detail: bool = True) -> dict[str, Any]:
        """The files below a folder, by their paths. Raises FileNotFoundError."""
        with _one_line():
            return {
                each.path: {"size": each.length, "type": "file", "mtime": each.modification_time / 1000}
                for each in self._client.list_status(path, True)
                if not each.isdir
            }

    def rm_file(self, path: str) -> None:
        with _one_line():
            self._client.delete(path, False)

    def invalidate_cache(self) -> None:
        """Nothing: there is none."""

    def _write(self, path: str, content: bytes) -> None:
        with self._new(path) as file:
            file.write(content)

    def _new(self, path: str) -> Any:
        how = importlib.import_module("hdfs_native").WriteOptions()
        how.overwrite = True
        return self._client.create(path, write_options=how)


class _Reading(io.RawIOBase):
    """A file of the client, whose `seek` does not say where it is then."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _one_line():
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return int(self._file.tell())


@contextlib.contextmanager
def _one_line() -> Any:
    """The name node's answers have the stack of its Java behind the sentence. RuntimeError is what the client
    raises for an answer that it has no error for: no data node takes a block, or the node is in safe mode."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(str(error).partition("\n")[0]) from None
    except OSError as error:
        first = str(error).partition("\n")[0]
        raise type(error)(first) from None
