"""A job is meant by its folder, or by its name while it runs on this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from onceflow.cli import cancel, checkpoints, job_folder, rescale, savepoint, status, stop
from onceflow.cli.job_folder import folder_of
from onceflow.runtime.errors import UsageError

RUNNING = {"/flows/a": "totals", "/flows/b": "alerts", "/flows/c": "alerts", "/flows/gone": None}


@pytest.fixture(autouse=True)
def machine(replaced: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def answer(running: Any, question: Any) -> dict[str, Any] | None:
        name = RUNNING[running.checkpoint_dir]
        return None if name is None else {"job": name}

    found = [SimpleNamespace(checkpoint_dir=folder) for folder in RUNNING]
    replaced(job_folder, "find_all", lambda: found)
    replaced(job_folder, "ask_running", answer)
    monkeypatch.chdir(tmp_path)


def test_a_name_is_that_of_a_running_job_unless_it_is_a_folder() -> None:
    assert folder_of("totals") == "/flows/a"
    assert folder_of("/flows/b") == "/flows/b"
    assert folder_of("s3://bucket/totals") == "s3://bucket/totals"
    assert folder_of("nobody") == "nobody"
    Path("totals").mkdir()
    assert folder_of("totals") == "totals"


def test_a_name_of_several_is_refused_with_their_folders() -> None:
    with pytest.raises(
        UsageError, match="several jobs are called 'alerts': give a folder, one of /flows/b, "
    ):
        folder_of("alerts")


@pytest.mark.parametrize(
    ("command", "more"),
    [(cancel, []), (checkpoints, []), (rescale, ["2"]), (savepoint, []), (status, []), (stop, [])],
)
def test_every_command_of_a_job_takes_its_name(command: Any, more: list[str]) -> None:
    """No job is there in truth, so each of them says so of the folder."""
    failed = CliRunner().invoke(command.app, ["totals", *more])
    assert isinstance(failed.exception, UsageError)
    assert "/flows/a" in str(failed.exception)
