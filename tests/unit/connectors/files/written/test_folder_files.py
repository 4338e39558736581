"""What is said of a folder in which no files can be made. What is written is in test_commits.py and in
tests/conformance."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow import Job
from onceflow.connectors.files.written.folder_files import LocalFiles
from onceflow.runtime.errors import JobFailedError, Unavailable


def test_a_folder_that_cannot_be_made_is_named_with_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=f"written to {tmp_path}/file/out: {tmp_path}/file.* can't be made"):
        LocalFiles().make_folder(str(tmp_path / "file" / "out"))


def test_a_job_that_writes_there_ends_with_that_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job = Job("words")
    job.from_elements({"word": "a"}).to_files(str(tmp_path / "file" / "out"))
    with pytest.raises(JobFailedError, match=r"no files can be written to .* give to_files\(\) or FileSink"):
        job.run(master="threads[1]")
