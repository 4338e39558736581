"""Place: where files are, on any file system that fsspec knows, and which version of a file is there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from onceflow.runtime.errors import OptionError

_WILD = frozenset("*?[")
_VERSIONS = (
    *("ETag", "etag", "md5Hash", "checksum", "mtime", "LastModified", "last_modified", "modification_time"),
    "created",
)
"""What file systems say of a file's content, or of when it was written: the first that is there counts."""


class FileVersion(NamedTuple):
    """What tells that a file is still the one that it was."""

    size: int
    version: str
    """A checksum, or when it was written; on a file system of this machine the latter, in s since the
    epoch."""


class StoredFiles(Protocol):
    """Where the files of splits are. A Place is one; so is the storage of a table, which lists its files in
    a log of its own."""

    def version(self, path: str) -> FileVersion | None:
        """The version of a file that is there now; None: there is none."""

    def open(self, path: str) -> BinaryIO:
        """The file, to be read from any place. Raises OSError."""
        ...


@dataclass(frozen=True)
class Place:
    """A file, a folder, or a pattern such as `in/*.jsonl`; a URL, or a path of this machine, which is made
    absolute, since slots may run in another folder. Opens nothing when it is made; picklable."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What fsspec's file system is made with: credentials, endpoints."""

    def __post_init__(self) -> None:
        if not (isinstance(self.url, str) and self.url):
            raise OptionError(
                f"{self.url!r} is not a place for files: give a path or a URL, such as 'in/*.jsonl'"
            )
        if "://" not in self.url and "::" not in self.url:
            object.__setattr__(self, "url", str(Path(self.url).expanduser().absolute()))

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "options": self.options}

    @property
    def is_local(self) -> bool:
        """Whether it is on a file system of this machine, or one that is mounted here."""
        return isinstance(self.fs, LocalFileSystem)

    @property
    def fs(self) -> Any:
        return self._found[0]

    @property
    def path(self) -> str:
        """The path within its file system: the URL without what names that."""
        return str(self._found[1])

    @cached_property
    def _found(self) -> tuple[Any, str]:
        try:
            return cast("tuple[Any, str]", fsspec.core.url_to_fs(self.url, **self.options))
        except (ImportError, ValueError) as error:
            raise OptionError(f"{self.url}: {error}") from error

    def files(self) -> dict[str, FileVersion]:
        """The files that are there now, by path, in the order of their names; one by one, or those of the
        folder or of the pattern. A name that begins with "." or "_" is left out: so are files called that are
        not complete yet."""
        path = self.path
        self.fs.invalidate_cache()
        if _WILD & set(path):
            found = self.fs.glob(path, detail=True)
        elif self.fs.isdir(path):
            found = self.fs.find(path, maxdepth=1, detail=True)
        else:
            found = {path: self.fs.info(path)} if self.fs.exists(path) else {}
        fixed = len(_fixed_part(path))
        return {
            name: version_of(info)
            for name, info in sorted(found.items())
            if info["type"] == "file" and not _is_hidden(name[fixed:])
        }

    def version(self, path: str) -> FileVersion | None:
        """The version of a file that is there now; None: there is none."""
        try:
            return version_of(self.fs.info(path))
        except FileNotFoundError:
            return None

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, open(path, "rb") if self.is_local else self.fs.open(path, "rb"))


def version_of(info: Mapping[str, Any]) -> FileVersion:
    """The version of a file, from what fsspec says of it."""
    said = next((info[name] for name in _VERSIONS if info.get(name) is not None), "")
    # A listing may say it in another form than a look at one file.
    said = said.timestamp() if isinstance(said, dt.datetime) else said
    return FileVersion(int(info["size"]), str(said).strip('"'))


def _fixed_part(path: str) -> str:
    """The folders in front of the first wild one, or of the file."""
    parts = path.split("/")
    wild = next((n for n, part in enumerate(parts) if _WILD & set(part)), len(parts) - 1)
    return "/".join(parts[:wild])


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
