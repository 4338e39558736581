"""Spool: what was put in comes out, from any thread, and nothing is left of it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onceflow.runtime.environment.spool import READ_BYTES, Spool
from onceflow.runtime.errors import Retryable


def open_spools(folder: Path) -> int:
    """How many files without a name, in this folder, this process has open."""
    links = (os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
    return sum(1 for link in links if link.startswith(str(folder)) and link.endswith("(deleted)"))


def test_parts_that_many_threads_write_are_read_each_by_itself(tmp_path: Path) -> None:
    spool, size = Spool("the state", tmp_path), READ_BYTES + 77
    contents = [bytes([n]) * size for n in range(20)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: spool.write(n * size, contents[n]), range(20)))
        opened = [spool.open(n * size, size) for n in range(20)]
        assert list(pool.map(lambda file: file.read(), opened)) == contents
    with spool.open(size - 1, 3) as file:
        assert file.read(2) == b"\0\1"
        assert file.read() == b"\1", "its end is that of the part"


def test_it_has_no_name_and_is_gone_when_nobody_holds_it(tmp_path: Path) -> None:
    spool = Spool("the state", tmp_path)
    spool.write(0, b"content")
    file = spool.open(0, 7)
    assert list(tmp_path.iterdir()) == []
    assert open_spools(tmp_path) == 1
    del spool
    assert file.read() == b"content", "who reads holds it"
    del file
    assert open_spools(tmp_path) == 0


def test_a_folder_in_which_there_is_no_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        Retryable, match=rf"no room in {tmp_path}/nowhere for the state: .*; give it room, or set TMPDIR to"
    ):
        Spool("the state", tmp_path / "nowhere")


def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    spool = Spool("the state", tmp_path)
    with pytest.raises(Retryable, match="give it room, or set TMPDIR"):
        spool.write(1 << 62, b"beyond what a file may have")
