"""Running jobs are found through their folder, by their owner only; what is stale or damaged says so."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onceflow.cli.list_jobs import app as list_app
from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskStatus
from onceflow.runtime.environment.running_jobs import (
    FILE_NAME,
    RunningJob,
    StartingJob,
    find,
    find_all,
    find_starting,
)
from onceflow.runtime.errors import UsageError
from onceflow.runtime.sockets.credentials import Credentials, TlsIdentity

ADDRESS = ("127.0.0.1", 4711)
SECRET = bytes(range(32))
PLAIN = Credentials(SECRET)


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "user"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")


def test_an_announced_job_is_found_by_its_folder(folder: str) -> None:
    announced = RunningJob.announce(folder, ADDRESS, PLAIN)
    found = find(folder)
    assert found == announced
    assert (found.address, found.credentials, found.pid) == (ADDRESS, PLAIN, os.getpid())
    assert [job.address for job in find_all()] == [ADDRESS]


def test_the_key_of_an_encrypted_job_is_found_with_its_secret(folder: str) -> None:
    encrypted = Credentials(SECRET, TlsIdentity("the certificate", "the key"))
    RunningJob.announce(folder, ADDRESS, encrypted)
    assert find(folder).credentials == encrypted
    assert "the key" not in repr(find(folder))


@pytest.mark.parametrize("prefix", ["file://", "file:"])
def test_a_file_url_is_the_same_folder(folder: str, prefix: str) -> None:
    RunningJob.announce(prefix + folder, ADDRESS, PLAIN)
    assert find(folder).credentials == PLAIN


def test_the_file_is_readable_by_its_owner_only(folder: str, own_state_folder: Path) -> None:
    before = os.umask(0)
    try:
        RunningJob.announce(folder, ADDRESS, PLAIN)
    finally:
        os.umask(before)
    files = [Path(folder) / FILE_NAME, *own_state_folder.rglob("*.json")]
    assert len(files) == 2
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET.hex() not in files[1].read_text(), "the note only points to the folder"


def test_the_secret_is_not_shown(folder: str) -> None:
    announced = RunningJob.announce(folder, ADDRESS, PLAIN)
    assert SECRET.hex() not in repr(announced)
    assert repr(SECRET) not in repr(announced)


def test_a_withdrawn_job_is_not_found_any_more(folder: str) -> None:
    RunningJob.announce(folder, ADDRESS, PLAIN).withdraw()
    assert list(find_all()) == []
    with pytest.raises(UsageError, match=r"no job runs on .*: start it with `onceflow run`"):
        find(folder)
    assert not list(Path(folder).glob(".running-*")), "no temporary file is left"


def test_a_driver_that_was_taken_over_leaves_the_new_ones_file_alone(folder: str) -> None:
    older = RunningJob(folder, ADDRESS, PLAIN, os.getpid() + 1)
    RunningJob.announce(folder, ("127.0.0.1", 4712), PLAIN)
    older.withdraw()
    assert find(folder).address == ("127.0.0.1", 4712)


def test_a_killed_drivers_file_stays_and_the_next_one_replaces_it(folder: str) -> None:
    RunningJob.announce(folder, ADDRESS, PLAIN)
    again = RunningJob.announce(folder, ("127.0.0.1", 4712), Credentials(b"x" * 32))
    assert find(folder) == again
    assert len(list(find_all())) == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        json.dumps({"address": ["h"], "secret": "00", "pid": 1}),
        json.dumps({"address": ["h", 1]}),
        json.dumps({"address": ["h", 1], "secret": "00", "pid": 1, "tls": ["certificate"]}),
    ],
)
def test_a_damaged_file_is_named(folder: str, content: str) -> None:
    Path(folder).mkdir(parents=True)
    (Path(folder) / FILE_NAME).write_text(content)
    with pytest.raises(UsageError, match=rf"{FILE_NAME} is damaged: remove it"):
        find(folder)


def test_a_damaged_note_hides_no_other_job(folder: str, own_state_folder: Path) -> None:
    RunningJob.announce(folder, ADDRESS, PLAIN)
    (note,) = own_state_folder.rglob("*.json")
    note.with_name("0000.json").write_text("{")
    assert len(list(find_all())) == 1


def test_checkpoints_elsewhere_leave_no_file() -> None:
    job = RunningJob.announce("memory://x", ADDRESS, PLAIN)
    assert list(find_all()) == []
    job.withdraw()
    with pytest.raises(UsageError, match="no job runs on memory://x"):
        find("memory://x")


def test_a_starting_job_is_found_until_its_run_is_over(folder: str) -> None:
    with StartingJob.announced("totals", folder):
        assert list(find_starting()) == [StartingJob("totals", folder, os.getpid())]
        assert list(find_all()) == [], "nobody can be asked yet"
    assert list(find_starting()) == []


def test_a_starting_job_leaves_the_file_of_one_that_runs_alone(folder: str) -> None:
    running = RunningJob.announce(folder, ADDRESS, PLAIN)
    with StartingJob.announced("totals", folder):
        assert find(folder) == running
    assert find(folder) == running
    assert list(find_all()) == [running]


def test_a_starting_job_that_was_killed_is_forgotten(folder: str, own_state_folder: Path) -> None:
    """It is forgotten even if its process id is another process's now."""
    with StartingJob.announced("totals", folder):
        (note,) = own_state_folder.rglob("*.starting")
        killed = json.loads(note.read_text()) | {"started_s": 1.0}
        left = note.with_name("left.starting")
        left.write_text(json.dumps(killed))
        note.with_name("damaged.starting").write_text("{")
        assert len(list(find_starting())) == 1
        assert not left.exists()


def test_a_job_with_checkpoints_elsewhere_starts_without_a_note() -> None:
    with StartingJob.announced("totals", "memory://x"):
        assert list(find_starting()) == []


def test_commands_on_a_starting_job_say_that_it_starts(folder: str) -> None:
    with pytest.raises(UsageError, match="no job runs on"):
        ask(folder, AskStatus())
    with StartingJob.announced("totals", folder):
        with pytest.raises(UsageError, match=rf"starting \(pid {os.getpid()}\)"):
            ask(folder, AskStatus())
        RunningJob.announce(folder, ("127.0.0.1", 1), PLAIN)  # of a driver that was killed before
        with pytest.raises(UsageError, match="is starting"):
            ask(folder, AskStatus())


def test_a_starting_job_is_listed(folder: str) -> None:
    with StartingJob.announced("totals", folder):
        told = CliRunner().invoke(list_app, ["--json"])
        assert json.loads(told.stdout) == [
            {"job": "totals", "pid": os.getpid(), "phase": "starting", "checkpoint_dir": folder}
        ]
        assert "totals" in CliRunner().invoke(list_app, []).stdout
