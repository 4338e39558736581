"""S3's uploads and objects in memory, with the rules that a sink rests on. What the real ones do is tested in
tests/conformance/test_file_sink.py, by the same calls."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence

from onceflow.connectors.files.written.uploads import GoneError
from onceflow.runtime.errors import Unavailable


class SimulatedUploads:
    """An Uploads. `objects`: what anybody sees."""

    bucket = "simulated"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._numbers = itertools.count()
        self._parts: dict[tuple[str, str], dict[int, bytes]] = {}

    def begin(self, key: str) -> str:
        upload = f"upload-{next(self._numbers)}"
        self._parts[key, upload] = {}
        return upload

    def add(self, key: str, upload: str, number: int, content: bytes) -> str:
        self._of(key, upload)[number] = content
        return _tag(content)

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> None:
        parts = self._of(key, upload)
        chosen = [parts.get(number, b"") for number in range(1, len(etags) + 1)]
        if not etags or [_tag(content) for content in chosen] != list(etags):
            raise Unavailable("a part has another tag")
        self.objects[key] = b"".join(chosen)
        del self._parts[key, upload]

    def is_there(self, key: str, upload: str) -> bool:
        return (key, upload) in self._parts

    def abort(self, key: str, upload: str) -> None:
        self._parts.pop((key, upload), None)

    def begun(self, prefix: str) -> Iterator[tuple[str, str]]:
        return iter([each for each in self._parts if each[0].startswith(prefix)])

    def size(self, key: str) -> int | None:
        return len(self.objects[key]) if key in self.objects else None

    def get(self, key: str) -> bytes:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]

    def put(self, key: str, content: bytes) -> None:
        self.objects[key] = content

    def create(self, key: str, content: bytes) -> None:
        if key in self.objects:
            raise FileExistsError(key)
        self.objects[key] = content

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def names(self, prefix: str) -> list[str]:
        return [key.removeprefix(prefix) for key in self.objects if key.startswith(prefix)]

    def _of(self, key: str, upload: str) -> dict[int, bytes]:
        if (key, upload) not in self._parts:
            raise GoneError(key)
        return self._parts[key, upload]


def _tag(content: bytes) -> str:
    return hashlib.blake2b(content).hexdigest()
