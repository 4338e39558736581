"""A pathlib.Path wherever the API takes a folder or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Job, read_state, write_state
from onceflow.runtime.errors import OptionError, UsageError
from onceflow.sinks.delta import DeltaSink
from onceflow.sinks.files import FileSink


@dataclass(frozen=True)
class Row:
    n: int


def test_files_checkpoints_and_savepoints(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n')
    job = Job("paths")
    rows = job.from_files(tmp_path / "in.jsonl", Row)
    rows.to_files(tmp_path / "simple", format="jsonl")
    rows.sink_to(FileSink(tmp_path / "sink", format="jsonl"), uid="sink")
    job.run(tmp_path / "checkpoints", master="threads[1]")
    for folder in ("simple", "sink"):
        (written,) = (tmp_path / folder).rglob("*.jsonl")
        assert written.read_text() == '{"n":1}\n'
    assert (tmp_path / "checkpoints").is_dir()
    table = pa.table({"k": ["a"], "value": [1]})
    write_state(tmp_path / "savepoint", "counts", "count", table, keys=["k"])
    sink = DeltaSink(tmp_path / "table")
    assert sink.url == str(tmp_path / "table")
    with read_state(tmp_path / "savepoint") as found:
        assert found.operators == ["counts"]


@pytest.mark.parametrize("given", [1.5, True, b"folder"])
def test_a_start_from_anything_else_is_refused(given: Any, tmp_path: Path) -> None:
    job = Job("paths")
    job.from_elements(1).collect()
    with pytest.raises(OptionError, match=r"start_from=.*a checkpoint's id, or the folder or URL"):
        job.run(tmp_path / "new", master="threads[1]", start_from=given)


def test_a_start_from_a_path_is_no_fresh_start(tmp_path: Path) -> None:
    job = Job("paths")
    job.from_elements(1).collect()
    with pytest.raises(UsageError, match=r"old is not a savepoint|old.* no savepoint"):
        job.run(tmp_path / "new", master="threads[1]", start_from=tmp_path / "old")
