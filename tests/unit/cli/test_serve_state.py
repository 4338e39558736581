"""`onceflow serve-state`: what is refused at the door."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow import StateClient
from onceflow.cli.serve_state import app
from onceflow.runtime.errors import UsageError

SERVE = [sys.executable, "-u", "-c", "from onceflow.cli.app import main; main()", "serve-state"]
PROGRAMS = Path(__file__).parents[1] / "changed_programs"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "0.0.0.0"], "would listen on all addresses"),
        (["--port", "70000"], "choose another port"),
        (["--refresh", "often"], "is not a duration"),
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


def test_a_token_file(tmp_path: Path) -> None:
    """The token of the file opens the server, and nothing is printed of it."""
    folder = shutil.copytree(PROGRAMS / "golden_3", tmp_path / "checkpoints")
    file = tmp_path / "token"
    file.write_text("too-short\n")
    result = CliRunner().invoke(app, [str(folder), "--token-file", str(file)])
    assert "less than 16 characters" in str(result.exception)
    file.write_text("0123456789abcdef\n")
    with subprocess.Popen(
        [*SERVE, str(folder), "--token-file", str(file)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            client = StateClient(url, "0123456789abcdef")
            assert client.get("process", "totals", "user-023")["checkpoint_id"] == 2
            with pytest.raises(UsageError, match="missing or wrong"):
                StateClient(url, "0123456789abcdeF").tables()
            client.close()
        finally:
            server.terminate()
        assert server.stdout.read() == ""
