"""What is remembered of files that were read: a few bytes each, in every checkpoint. Pure."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from onceflow.connectors.files.place import FileVersion
from onceflow.runtime.contracts import Json

_ENTRY = np.dtype([("path", "<u8"), ("version", "<u4")])
Entries = npt.NDArray[np.void]


class FinishedFiles:
    """Files that were read to their end: 12 bytes for each, of its path and of its version.

    Two of a million paths share their 8 bytes once in 37 million folders.
    """

    def __init__(self, remembered: Json) -> None:
        """`remembered`: what `with_files` returned; None: there are none."""
        packed = "" if remembered is None else remembered["files"]
        entries = np.frombuffer(base64.b85decode(packed), _ENTRY)
        self._versions: dict[int, int] = dict(
            zip(entries["path"].tolist(), entries["version"].tolist(), strict=True)
        )

    def read_version(self, path: str) -> int | None:
        """The hash of the version in which a file was read; None: it was not."""
        return self._versions.get(_path_hash(path))

    def with_files(self, files: Iterable[tuple[str, FileVersion]]) -> Json:
        """These files, too; JSON."""
        found = self._versions | {_path_hash(path): version_hash(version) for path, version in files}
        entries = np.empty(len(found), _ENTRY)
        paths = np.array(list(found.keys()), np.uint64)
        order = np.argsort(paths)
        entries["path"] = paths[order]
        entries["version"] = np.array(list(found.values()), np.uint32)[order]
        return {"files": base64.b85encode(entries.tobytes()).decode()}


def _path_hash(path: str) -> int:
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little")


def version_hash(version: FileVersion) -> int:
    """What is remembered of a version."""
    return zlib.crc32(f"{version.size} {version.version}".encode())
