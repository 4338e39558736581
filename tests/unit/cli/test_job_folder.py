"""A job is meant by its folder, or by its name while it runs on this machine."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest

from onceflow.cli import cancel, checkpoints, rescale, savepoint, status, stop
from onceflow.cli.job_folder import JobFolder, folder_of, named
from onceflow.runtime.errors import UsageError

RUNNING = (("/flows/a", "totals"), ("/flows/b", "alerts"), ("/flows/c", "alerts"))


def test_a_name_is_that_of_a_running_job() -> None:
    assert named("totals", RUNNING) == "/flows/a"
    assert named("nobody", RUNNING) == "nobody"


def test_what_is_a_folder_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("totals").mkdir()
    for folder in ("/flows/b", "s3://bucket/totals", "totals"):
        assert folder_of(folder) == folder


def test_a_name_of_several_is_refused_with_their_folders() -> None:
    with pytest.raises(
        UsageError, match="several jobs are called 'alerts': give a folder, one of /flows/b, /flows/c"
    ):
        named("alerts", RUNNING)


@pytest.mark.parametrize("command", [cancel, checkpoints, rescale, savepoint, status, stop])
def test_every_command_of_a_job_takes_its_name(command: Any) -> None:
    """Whether it reaches the job is seen in tests/integration/test_operating.py."""
    (registered,) = command.app.registered_commands
    hints = typing.get_type_hints(registered.callback, include_extras=True)
    assert hints["checkpoint_dir"] == JobFolder
