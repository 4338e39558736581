"""print(): what is shown, where, and once."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.sinks.print import PrintSink


def test_json_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    job = Job("shown")
    job.from_elements({"n": 1}, {"n": 2}).print()
    job.from_elements("a").print(label="texts")
    job.run(master="threads[2]")
    assert sorted(capsys.readouterr().out.splitlines()) == ['texts> {"value": "a"}', '{"n": 1}', '{"n": 2}']


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_on_a_terminal() -> None:
    job = Job("shown")
    job.from_elements({"user": "ann", "n": 1}, {"user": "bob", "n": 22}).print(label="totals")
    with contextlib.redirect_stdout(Terminal()) as shown:
        job.run(master="threads[1]")
    assert shown.getvalue() == "totals\nuser   n\n────  ──\nann    1\nbob   22\n\n"


def test_a_reader_that_has_gone_does_not_end_the_job(tmp_path: Path) -> None:
    job = Job("shown")
    job.from_records(pa.table({"n": list(range(50_000))})).print()
    kept, (read, write) = os.dup(1), os.pipe()
    os.close(read)
    with open(write, "w") as pipe, contextlib.redirect_stdout(pipe):
        result = job.run(master="threads[1]")
    assert result.outcome.value == "finished"
    os.close(kept)


def test_the_plan_says_what_may_be_shown_twice() -> None:
    assert "may be shown again" in PrintSink().plan_note
