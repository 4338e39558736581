"""RemoteStore: checkpoints on an object store, by the file system that fsspec has for it.

Everything rests on `create`, which is a put on the condition that the key is not there: `pipe_file` with
`mode="create"`. Not every file system of fsspec keeps that word, so a driver proves it (`create_proof.py`)
before it believes in it.

A put whose answer was lost is sent again, by us or below us, and then finds its own object: that is
AlreadyExists, and the log compares contents (`log.py`). What can't be told otherwise is Indeterminate.
What is read, and what is written under a name that nobody else uses, is tried again for `patience_s`: a
store that is away for a minute costs a checkpoint that takes a minute longer.
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, BinaryIO, TypeVar, cast

from onceflow.runtime.checkpoint.store import AlreadyExists, FileStatus
from onceflow.runtime.checkpoint.uploaded_file import UploadedFile
from onceflow.runtime.errors import Indeterminate, Unavailable

PATIENCE_S = 120.0
READ_BLOCK_BYTES = 4 << 20
"""What is asked for at once of a file that is read from its beginning to its end."""
_PAUSE_S, _PAUSE_S_MAX = 0.2, 5.0
_AT_ONCE = 16
"""Calls on their way at once, where many files are read, or deleted without a call for many."""
_DELETED_AT_ONCE = 1_000
_LASTING = FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError
T = TypeVar("T")


class RemoteStore:
    """A DistantStore. It keeps no second copies: an object store has its own."""

    def __init__(
        self,
        fs: Any,
        root: str,
        url: str,
        on_waiting: Callable[[str], None] = lambda reason: None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`fs`: a file system of fsspec; `root`: the folder as it knows it; `url`: as the user does.
        `on_waiting(reason)`: the store is away and is asked again; on any thread, "" when it is back."""
        self._fs = fs
        self._root = root.rstrip("/")
        self._url = url.rstrip("/")
        self._on_waiting = on_waiting
        self._patience_s = patience_s
        self._is_away = False
        """What was said last. Threads may say it twice, which does no harm."""

    def describe(self, path: str = "") -> str:
        return f"{self._url}/{path}" if path else self._url

    def create(self, path: str, content: bytes) -> None:
        try:
            self._fs.pipe_file(self._key(path), content, mode="create")
        except Exception as error:  # of whatever library the file system is made with
            if is_taken(error):
                raise AlreadyExists(f"{self.describe(path)} exists") from None
            if isinstance(error, FileNotFoundError | PermissionError):
                raise Unavailable(f"can't write {self.describe(path)}: {_said(error)}") from error
            self._say_it_is_away(path, error)
            reason = f"can't tell whether {self.describe(path)} was created: {_said(error)}"
            raise Indeterminate(reason) from error
        self._say_it_is_back()

    def create_file(self, path: str) -> BinaryIO:
        key = self._key(path)
        # The name is this attempt's alone: whoever asks for it twice does so in this process.
        if self._patiently(lambda: self._fs.exists(key), path):
            raise AlreadyExists(f"{self.describe(path)} exists")
        put = lambda content: self._patiently(lambda: self._fs.pipe_file(key, content), path)  # noqa: E731
        return cast(BinaryIO, UploadedFile(put, lambda: self._fs.open(key, "wb", block_size=UPLOAD_BYTES)))

    def write_copy(self, path: str, content: bytes) -> None:
        """Nothing: see the class."""

    def read(self, path: str) -> bytes:
        return bytes(self._patiently(lambda: self._fs.cat_file(self._key(path)), path))

    def read_all(self, paths: Iterable[str]) -> Mapping[str, bytes]:
        def read(path: str) -> tuple[str, bytes | None]:
            try:
                return path, self.read(path)
            except FileNotFoundError:
                return path, None

        with ThreadPoolExecutor(_AT_ONCE, "onceflow-read") as pool:
            return {path: content for path, content in pool.map(read, paths) if content is not None}

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        def read() -> bytes:
            # Without a cache that reads ahead: what is behind the range is somebody else's.
            with self._fs.open(self._key(path), "rb", block_size=READ_BLOCK_BYTES, cache_type="none") as file:
                size_there = min(size, file.seek(0, io.SEEK_END) - offset)
                if size_there <= 0:
                    return b""
                file.seek(offset)
                return bytes(file.read(size_there))

        return self._patiently(read, path)

    def open(self, path: str) -> BinaryIO:
        key = self._key(path)
        size = {"block_size": READ_BLOCK_BYTES, "cache_type": "readahead"}
        return cast(BinaryIO, self._patiently(lambda: self._fs.open(key, "rb", **size), path))

    def list(self, folder: str) -> list[FileStatus]:
        below = self._key(folder) if folder else self._root

        def find() -> dict[str, Any]:
            self._fs.invalidate_cache()
            try:
                return cast("dict[str, Any]", self._fs.find(below, detail=True))
            except FileNotFoundError:
                return {}

        found = self._patiently(find, folder)
        start = len(self._root) + 1
        return [
            FileStatus(key[start:], int(info["size"]), _modified_ms(info))
            for key, info in found.items()
            if info["type"] == "file" and key.startswith(f"{below}/")
        ]

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        try:
            if len(keys) > 1 and hasattr(self._fs, "call_s3"):
                self._delete_from_s3(keys)
            elif len(keys) > 1:
                with ThreadPoolExecutor(_AT_ONCE, "onceflow-delete") as pool:
                    list(pool.map(self._delete_one, keys))
            elif keys:
                self._delete_one(keys[0])
        except Exception as error:
            raise _as_os_error(error, f"can't delete in {self.describe()}") from error

    def abandon_uploads(self, is_left: Callable[[str], bool]) -> None:
        """See DistantStore: the multipart uploads of large files. Only S3 keeps them for ever."""
        if not hasattr(self._fs, "call_s3"):
            return
        bucket, _, below = self._root.partition("/")
        try:
            for key, upload in self._uploads(bucket, f"{below}/" if below else ""):
                if is_left(key[len(below) + 1 if below else 0 :]):
                    with contextlib.suppress(FileNotFoundError):
                        self._fs.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload)
        except Exception as error:
            raise _as_os_error(error, f"can't abort uploads in {self.describe()}") from error

    def _uploads(self, bucket: str, prefix: str) -> Iterator[tuple[str, str]]:
        markers: dict[str, str] = {}
        while True:
            page = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **markers)
            yield from ((each["Key"], each["UploadId"]) for each in page.get("Uploads") or ())
            if not page.get("IsTruncated"):
                return
            markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def _delete_one(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(key)

    def _delete_from_s3(self, keys: Sequence[str]) -> None:
        bucket = self._root.partition("/")[0]
        for first in range(0, len(keys), _DELETED_AT_ONCE):
            some = [{"Key": key[len(bucket) + 1 :]} for key in keys[first : first + _DELETED_AT_ONCE]]
            wanted = {"Objects": some, "Quiet": True}
            answer = self._fs.call_s3("delete_objects", Bucket=bucket, Delete=wanted)
            if errors := answer.get("Errors"):
                raise OSError(f"{errors[0]['Key']}: {errors[0].get('Message', 'not deleted')}")

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _patiently(self, call: Callable[[], T], path: str) -> T:
        """What the call returns; tried again while the store is away. Raises OSError."""
        waited_s, pause_s = 0.0, _PAUSE_S
        while True:
            try:
                result = call()
            except _LASTING:
                raise
            except Exception as error:
                reason = f"{self.describe(path)}: {_said(error)}"
                if waited_s >= self._patience_s:
                    raise OSError(f"{reason}; asked for {waited_s:.0f} s") from error
                self._say_it_is_away(path, error)
                threading.Event().wait(pause_s)
                waited_s, pause_s = waited_s + pause_s, min(2 * pause_s, _PAUSE_S_MAX)
            else:
                self._say_it_is_back()
                return result

    def _say_it_is_away(self, path: str, error: BaseException) -> None:
        self._is_away = True
        self._on_waiting(
            f"the checkpoint folder is away, {self.describe(path)}: {_said(error)}; it is asked again"
        )

    def _say_it_is_back(self) -> None:
        if self._is_away:
            self._is_away = False
            self._on_waiting("")


UPLOAD_BYTES = 16 << 20
"""The parts of a file that is too large to be put at once."""


def is_taken(error: BaseException) -> bool:
    """Whether a create says that somebody was faster."""
    if isinstance(error, FileExistsError):
        return True
    answer = getattr(error.__cause__, "response", None)
    return isinstance(answer, dict) and answer.get("Error", {}).get("Code") == "PreconditionFailed"


def _as_os_error(error: Exception, what: str) -> OSError:
    return error if isinstance(error, OSError) else OSError(f"{what}: {_said(error)}")


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _modified_ms(info: dict[str, Any]) -> int:
    """When it was written, as far as the file system tells; else 0."""
    for name in ("LastModified", "last_modified", "mtime", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, int | float):
            return int(value * 1000)
    return 0
