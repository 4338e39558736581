"""Job.run: in a script, a test or a notebook; what a run says that did not go well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import onceflow
from onceflow import Job
from onceflow.runtime.errors import JobFailedError, OptionError, UsageError


def breaks() -> Iterator[int]:
    yield 1
    raise ValueError("no more")


def numbers(count: int = 3) -> Job:
    job = Job("numbers")
    job.from_elements(*range(count)).collect()
    return job


def test_a_run_without_a_folder_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(os.listdir())
    assert onceflow.run(numbers(), master="threads[1]").outcome.value == "finished"
    assert set(os.listdir()) == before


def test_a_folder_of_this_machine_is_no_place_for_the_checkpoints_of_a_cluster() -> None:
    with pytest.raises(
        OptionError, match=r"without checkpoint_dir .* slots on spark://host:7077 may not see it"
    ):
        numbers().run(master="spark://host:7077")


def test_a_master_without_a_slot_is_refused() -> None:
    with pytest.raises(OptionError, match=r"--master threads\[0\] has no slot: write threads\[1\], or more"):
        numbers().run(master="threads[0]")


@pytest.mark.parametrize("folder", ["", " "])
def test_a_folder_without_a_name_is_refused(folder: str) -> None:
    """It would be the folder in which the command runs."""
    with pytest.raises(OptionError, match=r"checkpoint_dir='' names no folder: write './checkpoints'"):
        numbers().run(folder, master="threads[1]")


def test_a_job_that_fails_raises() -> None:
    job = Job("numbers")
    job.from_records(breaks, type=int).collect()
    with pytest.raises(JobFailedError, match=r"^job 'numbers' failed: .*breaks failed .*no more$"):
        job.run(master="threads[1]", restart="none")


def test_it_says_from_where_it_goes_on(tmp_path: Path) -> None:
    job = Job("numbers")
    job.from_records(breaks, type=int).collect()
    with pytest.raises(JobFailedError, match=f"last completed checkpoint: 0 in {tmp_path}: run again"):
        job.run(str(tmp_path), master="threads[1]", restart="none")


def test_a_folder_of_another_job_is_refused(tmp_path: Path) -> None:
    for name, error in (("numbers", JobFailedError), ("letters", UsageError)):
        job = Job(name)
        job.from_records(breaks, type=int).collect()
        with pytest.raises(error, match="numbers"):
            job.run(str(tmp_path), master="threads[1]", restart="none")
