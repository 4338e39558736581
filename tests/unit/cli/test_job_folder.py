"""A job is meant by its folder, or by its name while it runs on this machine."""

from __future__ import annotations

import socket
import typing
from pathlib import Path
from typing import Any

import pytest

from onceflow.cli import cancel, checkpoints, rescale, savepoint, status, stop
from onceflow.cli.job_folder import JobFolder, folder_of, named
from onceflow.runtime.environment.running_jobs import RunningJob, StartingJob
from onceflow.runtime.errors import UsageError
from onceflow.runtime.sockets.credentials import Credentials

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


def test_one_that_is_too_busy_to_answer_is_called_what_its_process_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = str(tmp_path / "ck")
    Path(folder).mkdir()
    with socket.socket() as deaf, StartingJob.announced("totals", folder):
        deaf.bind(("127.0.0.1", 0))
        RunningJob.announce(folder, deaf.getsockname(), Credentials(b"secret", None))
        assert folder_of("totals") == folder


@pytest.mark.parametrize("command", [cancel, checkpoints, rescale, savepoint, status, stop])
def test_every_command_of_a_job_takes_its_name(command: Any) -> None:
    """Whether it reaches the job is seen in tests/integration/test_operating.py."""
    (registered,) = command.app.registered_commands
    hints = typing.get_type_hints(registered.callback, include_extras=True)
    assert hints["checkpoint_dir"] == JobFolder
