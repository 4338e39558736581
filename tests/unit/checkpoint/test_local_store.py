"""What the local store says of a folder that can't be used. What it promises is in tests/conformance."""

from __future__ import annotations

import ctypes
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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


@contextmanager
def as_nobody() -> Iterator[None]:
    """This thread may do with files what anybody may. (Root, which may do everything, runs tests, too.)"""
    set_user = ctypes.CDLL(None).setfsuid
    before = set_user(pwd.getpwnam("nobody").pw_uid)
    try:
        yield
    finally:
        set_user(before)


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A folder into which everybody may look, as they may into those above it."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_may_not_be_read_is_not_taken_for_empty(anybodys: Path) -> None:
    """Nor is the whole listing refused for a folder of somebody else's below a disk's root."""
    store = LocalStore(str(anybodys))
    store.create("state/a", b"1")
    (anybodys / "lost+found").mkdir(mode=0)
    with as_nobody():
        assert [status.path for status in store.list("")] == ["state/a"]
        assert store.list("nowhere") == []
        assert store.list("state/a") == []
    for folder in ("state", ""):
        (anybodys / folder).chmod(0)
        with as_nobody(), pytest.raises(PermissionError):
            store.list(folder)
        (anybodys / folder).chmod(0o755)


def test_another_file_system_is_not_asked() -> None:
    check_folder("memory://never-made")
