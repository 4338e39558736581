"""`onceflow state`: lines for scripts, a table for people, a sentence for what is not there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.state import app
from onceflow.runtime.errors import OnceflowError

PROGRAMS = Path(__file__).parents[1] / "changed_programs"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(shutil.copytree(PROGRAMS / "golden_3", tmp_path / "checkpoints"))


def test_the_command_prints_lines_for_scripts(folder: str) -> None:
    listed = CliRunner().invoke(app, [folder])
    assert '{"operator": "process", "state": "n", "kind": "value", "stored_rows": 126,' in listed.stdout
    printed = CliRunner().invoke(
        app, [folder, "--operator", "process", "--state", "totals", "--key", "user-023"]
    )
    assert printed.stdout == '{"user": "user-023", "map_key": 30000, "value": 395}\n'
    few = CliRunner().invoke(app, [folder, "--operator", "tumbling", "--limit", "3"])
    assert len(few.stdout.splitlines()) == 3
    wrong = CliRunner().invoke(app, [folder, "--operator", "tumblin"])
    assert isinstance(wrong.exception, OnceflowError)
    assert "(did you mean 'tumbling'?)" in str(wrong.exception)
    wrong = CliRunner().invoke(app, [folder, "--state", "n"])
    assert "use --operator UID" in str(wrong.exception)
