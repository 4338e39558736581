"""A job goes back: the folder has the rows of the older checkpoint, and no others, whatever crashes; and then
those that are written anew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onceflow.connectors.files.written.commits import OutputCommits
from onceflow.connectors.files.written.open_store import begun_at
from onceflow.connectors.files.written.output_store import OutputStore
from tests.unit.connectors.files.written.test_commits import (
    CHECKPOINTS,
    EXPECTED,
    LINEAGE,
    ROWS,
    SUBTASKS,
    UID,
    CrashError,
    Crashing,
    Folder,
    Job,
    new_folder,
    promises,
    records,
    writers,
)
from tests.unit.connectors.files.written.test_commits import tmp_path as tmp_path  # in memory


def rows_of(to: int) -> Counter[int]:
    return Counter(range(SUBTASKS * ROWS, (to + 1) * SUBTASKS * ROWS))


def begun(name: str) -> int | None:
    return begun_at(name, UID, LINEAGE)


def goes_back(job: Job, to: int, past: int, at: int | None = None, marker: str | None = None) -> int:
    """One attempt that takes back, and crashes there; how many calls it made."""
    job.attempt += 1
    made: list[Crashing] = []

    def calls(store: Any) -> Any:
        made.append(Crashing(store, at))
        return made[0]

    try:
        commits = OutputCommits(job.folder.open(calls), job.attempt, marker, job.small_files)
        if commits.last_committed() != past + 1:
            commits.take_back(past + 1, to, promises(job.durable[to - 1]), begun)
    except CrashError:
        pass
    return made[0].calls


def goes_on(job: Job, to: int, past: int) -> None:
    """The rows behind checkpoint `to` again, in one checkpoint."""
    store: OutputStore = job.folder.open(lambda to: to)
    commits = OutputCommits(store, job.attempt, None, job.small_files)
    assert commits.last_committed() == past + 1
    made = writers(store, job.attempt, past + 1, job.clock)
    for n in range(to + 1, CHECKPOINTS + 1):
        for subtask, writer in enumerate(made):
            first = (n * SUBTASKS + subtask) * ROWS
            writer.write(records(range(first, first + ROWS)))
    job.clock.advance(100)
    commits.commit(past + 2, promises([writer.pre_commit(past + 2).stage() for writer in made]))


def new_job(kind: str, path: Path) -> Job:
    job = Job(new_folder(kind, path, False))
    job.run()
    job.folder.seen.clear()
    return job


@pytest.mark.parametrize("to", [1, 2, 3])
@pytest.mark.parametrize("kind", ["here", "s3"])
def test_a_crash_at_any_call_leaves_what_the_older_checkpoint_had(kind: str, to: int, tmp_path: Path) -> None:
    calls = goes_back(new_job(kind, tmp_path / "calm"), to, CHECKPOINTS)
    assert calls > 10
    for at in range(calls):
        job = new_job(kind, tmp_path / str(at))
        assert job.folder.rows() == EXPECTED
        goes_back(job, to, CHECKPOINTS, at)
        goes_back(job, to, CHECKPOINTS)
        assert job.folder.rows() == rows_of(to), f"crash after call {at}"
        goes_on(job, to, CHECKPOINTS)
        assert job.folder.rows() == EXPECTED, f"crash after call {at}"


@pytest.mark.parametrize("kind", ["here", "s3"])
def test_a_commit_that_was_cut_off_is_taken_back_as_well(kind: str, tmp_path: Path) -> None:
    """Files that it has shown are there, and its ledger does not know of them."""
    for at in range(5, 60, 3):
        job = Job(new_folder(kind, tmp_path / str(at), False))
        job.run(at)
        past = len(job.durable)
        for to in range(1, past)[-1:]:
            goes_back(job, to, past)
            assert job.folder.rows() == rows_of(to), f"crash after call {at}"


@pytest.mark.parametrize("kind", ["here", "s3"])
def test_what_others_have_put_there_and_what_was_taken_away_stays_so(kind: str, tmp_path: Path) -> None:
    job = new_job(kind, tmp_path / "out")
    others = {"odd=1/other-0000000009-0000-000-99999999.jsonl", "odd=0/out-notes.jsonl"}
    put(job.folder, *others)
    names = sorted(job.folder.files().keys() - others)
    job.folder.remove(names[0])
    goes_back(job, 1, CHECKPOINTS)
    left = job.folder.files().keys()
    assert others <= left
    assert names[0] not in left
    assert all((begun(name) or 0) <= 1 for name in left)


@pytest.mark.parametrize("kind", ["here", "s3"])
def test_a_marker_goes_where_rows_come_again(kind: str, tmp_path: Path) -> None:
    job = new_job(kind, tmp_path / "out")
    put(job.folder, "odd=0/_SUCCESS", "even=7/_SUCCESS")
    goes_back(job, 1, CHECKPOINTS, marker="_SUCCESS")
    assert not is_there(job.folder, "odd=0/_SUCCESS")
    assert is_there(job.folder, "even=7/_SUCCESS")


def put(folder: Folder, *names: str) -> None:
    store: Any = folder.open(lambda to: to)
    for name in names:
        store.mark(*name.split("/"))


def is_there(folder: Folder, name: str) -> bool:
    return name in folder.open(lambda to: to).shown()
