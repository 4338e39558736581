"""UploadedFile: small files at once, large ones in parts, and nothing of what failed."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.runtime.checkpoint.uploaded_file import UploadedFile


class Large:
    """A file of fsspec, and what came of it."""

    def __init__(self, failing: bool = False) -> None:
        self.content, self.end, self.failing = b"", "", failing

    def write(self, content: Any) -> None:
        if self.failing and len(self.content) > 2:
            raise RuntimeError("what a library raises")
        self.content += bytes(content)

    def close(self) -> None:
        self.end = "closed"

    def discard(self) -> None:
        self.end = "discarded"


def test_a_small_file_is_put_once_when_it_is_closed() -> None:
    puts: list[bytes] = []
    with UploadedFile(puts.append, Large) as file:
        assert file.write(memoryview(b"ab")) == 2
        file.write(b"c")
        assert (file.tell(), puts) == (3, [])
    file.close()
    assert puts == [b"abc"]


def test_a_large_file_is_sent_while_it_is_written() -> None:
    puts: list[bytes] = []
    large = Large()
    with UploadedFile(puts.append, lambda: large, small_bytes=4) as file:
        for _ in range(3):
            file.write(b"abc")
        assert large.content == b"abcabcabc"
    assert (large.end, puts, file.tell()) == ("closed", [], 9)


def test_what_fails_is_an_os_error_and_is_not_closed() -> None:
    large = Large(failing=True)
    file = UploadedFile(lambda content: None, lambda: large, small_bytes=2)
    file.write(b"abc")
    with pytest.raises(OSError, match="what a library raises"):
        file.write(b"abc")
    file.close()
    assert large.end == "discarded"
