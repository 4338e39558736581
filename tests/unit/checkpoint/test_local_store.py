"""What the local store says of a folder that can't be used. What it promises is in tests/conformance."""

from __future__ import annotations

from pathlib import Path

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


def test_another_file_system_is_not_asked() -> None:
    check_folder("memory://never-made")
