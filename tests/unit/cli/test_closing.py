"""What `onceflow run` says last: for every way to end, what is kept and what can be done."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from onceflow.cli.closing import advice, closing_lines
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.listing import CheckpointStatus, CheckpointSummary
from onceflow.runtime.driver.result import JobResult

NOTHING: list[CheckpointSummary] = []
GOOD = [CheckpointSummary(CheckpointStatus.COMPLETED, "log/x", n) for n in (4, 5, 6)]
DAMAGED = [*GOOD[:2], CheckpointSummary(CheckpointStatus.DAMAGED, "log/x", 6, problem="is gone")]
UNREADABLE = [*GOOD[:2], CheckpointSummary(CheckpointStatus.UNREADABLE, "log/9", problem="is torn")]
RUN_AGAIN = "last completed checkpoint: 6 in dir; run the same command again to go on from it"
MEND = "last completed checkpoint: 6 in dir; fix the cause, then run the same command again to go on from it"
FROM_5 = "last good checkpoint: 5 in dir, also kept: 4; --from 5 goes on from it, exactly, if"


@pytest.mark.parametrize(
    ("cause", "last", "found", "says"),
    [
        ("", 6, GOOD, RUN_AGAIN),  # a slot was lost too often
        ("Retryable", 6, GOOD, RUN_AGAIN),  # a broker stayed away
        ("Retryable", None, NOTHING, "no checkpoint is in dir yet; run the same command again to start from"),
        ("UserFunctionError", 6, GOOD, MEND),
        ("BadRecordError", 6, GOOD, MEND),
        ("KeyError", 6, GOOD, MEND),
        ("Fatal", 5, GOOD, "a newer one is kept: --from 6 goes on from it"),  # --from 5 was refused by a sink
        (
            "Fatal",
            5,
            GOOD,
            "also kept: 4; --from N goes back to one of them if no later output has been committed",
        ),
        (
            "UsageError",
            None,
            GOOD,
            "last completed checkpoint: 6 in dir; do what the reason says, and run",
        ),
        ("OptionError", None, NOTHING, "no checkpoint is in dir yet; do what the reason says"),
        (
            "DataLossError",
            None,
            GOOD,
            "last completed checkpoint: 6 in dir; the same command stops here",
        ),
        (
            "CorruptCheckpointError",
            None,
            DAMAGED,
            "the same command meets the damage again: bring",
        ),
        ("CorruptCheckpointError", 6, DAMAGED, FROM_5),
        ("CorruptCheckpointError", None, UNREADABLE, FROM_5),
        (
            "CorruptCheckpointError",
            None,
            DAMAGED[2:],
            "no good checkpoint is left in dir: another",
        ),
        (
            "CorruptCheckpointError",
            None,
            NOTHING,
            "no checkpoint is in dir yet: what is damaged is the savepoint or checkpoint that --from names",
        ),
    ],
)
def test_a_failed_job(cause: str, last: int | None, found: list[CheckpointSummary], says: str) -> None:
    result = JobResult(Outcome.FAILED, "why", last, cause=cause)
    lines = advice(result, "dir", found)
    assert any(line.startswith(says) for line in lines), lines


@pytest.mark.parametrize("found", [DAMAGED, UNREADABLE])
def test_what_was_refused_is_never_offered(found: list[CheckpointSummary]) -> None:
    result = JobResult(Outcome.FAILED, "why", 6, cause="CorruptCheckpointError")
    told = " ".join(advice(result, "dir", found))
    assert "6" not in told
    assert "run the same command again" not in told


def test_a_fenced_job_has_nothing_to_be_run_again() -> None:
    (line,) = advice(JobResult(Outcome.FENCED, "another driver", 6), "dir", GOOD)
    assert "nothing is to be done" in line
    assert "onceflow status dir" in line


class Away(MemoryFileSystem):
    """A file system of fsspec whose every answer is that nobody is there."""

    protocol = "away"
    asked = 0

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        raise ConnectionError("nobody answers")

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        Away.asked += 1
        raise ConnectionError("nobody answers")


def test_a_store_that_is_away_is_asked_once_and_not_waited_for_again() -> None:
    """It may be what ended the job, which has waited for it already: two minutes, after its last event."""
    fsspec.register_implementation("away", Away, clobber=True)
    result = JobResult(Outcome.FAILED, "the checkpoint folder is away", None, cause="Unavailable")
    assert closing_lines(result, "away://bucket/job") == ["the job failed: the checkpoint folder is away"]
    assert Away.asked == 1


def test_a_folder_that_can_not_be_read_leaves_the_reason(tmp_path: Path) -> None:
    result = JobResult(Outcome.FAILED, "why", None, cause="UsageError")
    (tmp_path / "log").mkdir()
    newer = b'{"position":0,"format_version":9,"entry":{}'
    (tmp_path / "log" / "0000000000.json").write_bytes(
        newer + b',"checksum":"crc32:%08x"}' % zlib.crc32(newer)
    )
    assert closing_lines(result, str(tmp_path)) == ["the job failed: why"]
    assert "no checkpoint is in" in closing_lines(result, str(tmp_path / "none"))[1]
