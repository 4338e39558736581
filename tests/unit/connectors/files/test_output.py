"""The folder of a file sink: what is seen after a crash in each gap of a commit, and what is never lost in
silence."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from onceflow.connectors.files.output import OutputFolder
from onceflow.connectors.files.place import Place
from onceflow.runtime.errors import DataLossError

LINEAGE = "3f2a9c01deadbeef"
FILES = [("000001.0000.00000000", "out-0000000007-0000-3f2a9c01.csv"), ("000001.0001.00000000", "b.csv")]


@pytest.fixture
def folder(tmp_path: Path) -> OutputFolder:
    """Two writers have written a file each."""
    made = OutputFolder(Place(str(tmp_path)), LINEAGE, "out")
    for subtask in range(2):
        _, file = made.create(1, subtask, 0)
        file.write(b"rows")
        made.finish(file)
    return made


def hidden(tmp_path: Path) -> Path:
    return tmp_path / ".onceflow" / f"{LINEAGE}.out"


def seen(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("."))


BOTH = sorted(name for _, name in FILES)


def test_names_say_sink_checkpoint_subtask_and_job(folder: OutputFolder) -> None:
    assert folder.visible_name(7, 0, ".csv") == FILES[0][1]


def test_a_commit_makes_whole_files_visible_and_is_known(folder: OutputFolder, tmp_path: Path) -> None:
    assert (seen(tmp_path), folder.last_committed()) == ([], None)
    folder.commit(7, FILES)
    assert (seen(tmp_path), folder.last_committed()) == (BOTH, 7)
    assert sorted(path.name for path in hidden(tmp_path).iterdir()) == ["committed-0000000007"]


def test_after_a_crash_between_two_files_the_rest_is_committed(folder: OutputFolder, tmp_path: Path) -> None:
    (hidden(tmp_path) / "committing-0000000007").touch()
    (hidden(tmp_path) / FILES[0][0]).rename(tmp_path / FILES[0][1])
    folder.commit(7, FILES)
    assert (seen(tmp_path), folder.last_committed()) == (BOTH, 7)


def test_a_commit_is_repeated_on_another_file_system_too() -> None:
    place = Place(f"memory://{uuid.uuid4().hex}")
    made = OutputFolder(place, LINEAGE, "out")
    for subtask in range(2):
        _, file = made.create(1, subtask, 0)
        file.write(b"rows")
        made.finish(file)
    hidden = f"{place.path}/.onceflow/{LINEAGE}.out"
    place.fs.pipe_file(f"{hidden}/committing-0000000007", b"")
    place.fs.mv(f"{hidden}/{FILES[0][0]}", f"{place.path}/{FILES[0][1]}")
    made.commit(7, FILES)
    assert sorted(path.rpartition("/")[2] for path in place.files()) == BOTH
    assert made.last_committed() == 7
    place.fs.rm(place.path, recursive=True)


def test_a_file_that_was_seen_and_taken_away_is_not_missed(folder: OutputFolder, tmp_path: Path) -> None:
    """Killed after the first file was renamed; whoever reads the folder has moved it before the next
    attempt."""
    (hidden(tmp_path) / "committing-0000000007").touch()
    (hidden(tmp_path) / FILES[0][0]).unlink()
    folder.commit(7, FILES)
    assert (seen(tmp_path), folder.last_committed()) == ([FILES[1][1]], 7)


def test_a_file_that_the_driver_does_not_see_ends_the_job(folder: OutputFolder, tmp_path: Path) -> None:
    """It lies on another machine's disk: nothing of the checkpoint is shown."""
    (hidden(tmp_path) / FILES[1][0]).unlink()
    with pytest.raises(
        DataLossError, match=r"000001.0001.00000000 is not there, which a slot wrote for checkpoint 7"
    ):
        folder.commit(7, FILES)
    assert (seen(tmp_path), folder.last_committed()) == ([], None)


def test_what_earlier_attempts_left_is_deleted_and_nothing_else(folder: OutputFolder, tmp_path: Path) -> None:
    folder.commit(7, FILES[:1])
    _, ours = folder.create(2, 0, 0)
    folder.finish(ours)
    folder.commit(8, [("000002.0000.00000000", "c.csv")])
    _, ours = folder.create(2, 0, 1)
    folder.finish(ours)
    folder.sweep(2, 8)
    left = sorted(path.name for path in hidden(tmp_path).iterdir())
    assert left == ["000002.0000.00000001", "committed-0000000008"]
    assert seen(tmp_path) == sorted([FILES[0][1], "c.csv"])
