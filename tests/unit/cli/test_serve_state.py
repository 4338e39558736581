"""`onceflow serve-state`: what is refused at the door."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.serve_state import app
from onceflow.runtime.errors import UsageError

PROGRAMS = Path(__file__).parents[1] / "changed_programs"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "0.0.0.0"], "would listen on all addresses"),
        (["--port", "70000"], "choose another port"),
        (["--refresh", "often"], "is no duration"),
        (["--refresh", "0 s"], "has to be more than nothing"),
        (["--table", "process"], "write UID.STATE"),
        (["--table", "proces.n"], "did you mean 'process'"),
        (["--token-file", "/nowhere/token"], "can't be read"),
    ],
)
def test_what_is_refused(options: list[str], sentence: str, tmp_path: Path) -> None:
    folder = shutil.copytree(PROGRAMS / "golden_3", tmp_path / "checkpoints")
    result = CliRunner().invoke(app, [str(folder), *options])
    assert isinstance(result.exception, UsageError)
    assert sentence in str(result.exception)
