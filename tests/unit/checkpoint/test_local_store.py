"""What the local store says of a folder that can't be used. What it promises is in tests/conformance."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from onceflow import Job
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.store_url import check_folder
from onceflow.runtime.errors import OptionError


def test_a_folder_that_can_be_written_is_there_afterwards_and_empty(tmp_path: Path) -> None:
    check_folder(str(tmp_path / "a" / "b"))
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_folder_below_a_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = tmp_path / "file" / "checkpoints"
    with pytest.raises(OptionError, match=f"folder {wrong} can't be written .File exists: {wrong.parent}"):
        LocalStore(str(wrong)).check_writable()
    job = Job("words")
    job.from_elements("a").print()
    with pytest.raises(OptionError, match=r"--checkpoint-dir, or checkpoint_dir= of job\.run"):
        job.run(str(wrong), master="threads[1]")


def test_a_folder_that_may_not_be_read_is_not_taken_for_empty(tmp_path: Path, replaced: Any) -> None:
    """Nor is the whole listing refused for a folder of somebody else's below a disk's root."""
    store, scandir = LocalStore(str(tmp_path)), os.scandir
    store.create("state/a", b"1")
    (tmp_path / "lost+found").mkdir()
    forbidden = {str(tmp_path / "lost+found")}

    def guarded(folder: Any) -> Any:
        if str(folder) in forbidden:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return scandir(folder)

    replaced(os, "scandir", guarded)
    assert [status.path for status in store.list("")] == ["state/a"]
    assert store.list("nowhere") == []
    assert store.list("state/a") == []
    for folder in ("state", ""):
        forbidden.add(str(tmp_path / folder))
        with pytest.raises(PermissionError):
            store.list(folder)


def test_another_file_system_is_not_asked() -> None:
    check_folder("memory://never-made")
