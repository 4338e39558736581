"""`onceflow stop` returns when the job is gone, says how it ended, and does not wait for ever."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onceflow.cli.stop import app
from onceflow.runtime.api.job import Job
from onceflow.runtime.control.messages import Ended, Status, ToDriver
from onceflow.runtime.control.server import ControlServer
from onceflow.runtime.environment.running_jobs import RunningJob, StartingJob, find_starting
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.testing.background_job import BackgroundJob

LET_GO = threading.Event()
CALLED = threading.Event()


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "user"))
    LET_GO.clear()
    CALLED.clear()
    yield
    LET_GO.set()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")


def take(_: Any) -> None:
    pass


def numbers() -> Iterator[int]:
    yield 1
    CALLED.set()
    LET_GO.wait()  # in the slot's own thread: meanwhile there is no checkpoint


def never_ending() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1
        CALLED.set()


def start(folder: str, records: Any) -> BackgroundJob:
    job = Job("totals")
    job.from_records(records).foreach(take)
    running = BackgroundJob(job, folder)
    assert CALLED.wait(120)
    return running


def test_it_says_how_the_job_has_ended(folder: str) -> None:
    job = start(folder, never_ending)
    told = CliRunner().invoke(app, [folder])
    last = job.wait().last_checkpoint_id
    assert told.exit_code == 0, told.output
    assert told.stdout == f"totals stopped: on request, after a last checkpoint; last checkpoint {last}\n"


def test_a_drained_job_has_finished_and_its_savepoint_is_taken(folder: str) -> None:
    job = start(folder, never_ending)
    told = CliRunner().invoke(app, [folder, "--drain", "--savepoint", "--json"])
    assert told.exit_code == 0, told.output
    ended = json.loads(told.stdout)
    assert ended["outcome"] == "finished"
    assert ended["reason"].startswith("drained on request")
    assert ended["savepoint"]["checkpoint_id"] == job.wait().last_checkpoint_id


def test_a_job_that_was_stopped_and_not_drained_is_told_from_one_that_was(folder: str) -> None:
    credentials = Credentials(b"s" * 32)

    def stop_plainly(messages: Sequence[tuple[int, ToDriver]]) -> None:
        for peer, _ in messages:
            server.send(peer, Status(status={"job": "totals"}))
            server.send(peer, Ended(outcome="stopped", reason="on request", checkpoint_id=3))

    server = ControlServer(credentials, "127.0.0.1", stop_plainly, lambda _: None)
    RunningJob.announce(folder, server.address, credentials)
    told = CliRunner().invoke(app, [folder, "--drain", "--savepoint"])
    server.close()
    assert "stopped without being drained: no attempt ran, or another stop came first" in str(told.exception)


def test_it_waits_until_the_process_has_let_go_of_the_job(folder: str) -> None:
    job = start(folder, never_ending)
    over = threading.Event()

    def hold() -> None:
        with StartingJob.announced("totals", folder):
            held.set()
            over.wait(120)

    held = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(120)
    late = CliRunner().invoke(app, [folder, "--timeout", "300 ms"])
    assert isinstance(late.exception, OnceflowError)
    assert "has not ended 0.3 s after it was asked to" in str(late.exception)
    job.wait()
    over.set()
    holder.join()
    assert not list(find_starting())


def test_it_gives_up_at_its_deadline_and_the_stop_goes_on(folder: str) -> None:
    job = start(folder, numbers)
    told = CliRunner().invoke(app, [folder, "--timeout", "200 ms"])
    assert isinstance(told.exception, OnceflowError)
    assert f"look at it with `onceflow status {folder}`" in str(told.exception)
    LET_GO.set()
    assert job.wait().reason


def test_without_waiting_it_only_asks(folder: str) -> None:
    job = start(folder, numbers)
    told = CliRunner().invoke(app, [folder, "--no-wait"])
    assert (told.exit_code, told.stdout) == (0, "totals stops after a last checkpoint\n")
    LET_GO.set()
    job.wait()


def test_a_driver_that_is_killed_meanwhile_is_told_from_an_end(folder: str) -> None:
    credentials = Credentials(b"s" * 32)

    def answer_and_die(messages: Sequence[tuple[int, ToDriver]]) -> None:
        for peer, _ in messages:
            server.send(peer, Status(status={"job": "totals"}))
            server.hang_up(peer)

    server = ControlServer(credentials, "127.0.0.1", answer_and_die, lambda _: None)
    RunningJob.announce(folder, server.address, credentials)
    told = CliRunner().invoke(app, [folder])
    server.close()
    assert isinstance(told.exception, OnceflowError)
    assert f"the driver of job 'totals' (pid {os.getpid()}) was gone before it said" in str(told.exception)


def test_json_has_the_end(folder: str) -> None:
    job = start(folder, never_ending)
    told = json.loads(CliRunner().invoke(app, [folder, "--json"]).stdout)
    assert (told["job"], told["phase"], told["outcome"]) == ("totals", "over", "stopped")
    assert told["last_checkpoint_id"] == job.wait().last_checkpoint_id
