"""What a slot tells of an error that is no Exception, which would end its process without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow import Job
from onceflow.runtime.errors import JobFailedError


class Panic(BaseException):
    """What libraries written in Rust raise."""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Panic("out of range")])
def test_it_is_told_by_its_line_and_fatal_the_second_time(error: BaseException, tmp_path: Path) -> None:
    def ends(number: int) -> bool:
        if number == 2:
            raise error
        return True

    line = ends.__code__.co_firstlineno + 2
    job = Job("ends")
    job.from_elements(1, 2, 3).filter(ends).collect()
    with pytest.raises(JobFailedError) as caught:
        job.run(master="threads[1]", checkpoint_dir=tmp_path / "ck")
    said = str(caught.value)
    assert f"{type(error).__name__}: {error} was raised at {__file__}:{line}" in said
    assert "attempt 1 failed for the same reason" in said
