"""A client asks all the time while the job is killed and started again: no answer fails or goes back."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onceflow import StateClient, read_state
from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskRescale
from onceflow.runtime.errors import UsageError

pytestmark = [pytest.mark.timeout(600)]
JOB = Path(__file__).parent / "jobs" / "remembered.py"
USERS = ["user-1", "user-4"]
SERVE = [sys.executable, "-u", "-c", "from onceflow.cli.app import main; main()", "serve-state"]


def test_answers_go_on_while_the_job_is_killed(start_job: Any, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    job = start_job(folder, program=JOB)
    job.wait_event("checkpoint_completed", lambda e: e["checkpoint_id"] >= 3)
    command = [*SERVE, str(folder), "--refresh", "50 ms", "--table", "remembered.items"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url, token = server.stdout.readline().strip(), server.stdout.readline().split()[1]
            client = StateClient(url, token)
            answers = [client.get_many("remembered", "items", USERS)]
            compared = ask_until(client, folder, answers, answers[0]["checkpoint_id"] + 3)
            job.kill_group()
            assert job.wait(60) != 0
            again = start_job(folder, program=JOB)
            newest = answers[-1]["checkpoint_id"]
            compared += ask_until(client, folder, answers, newest + 6)
            again.kill_group()
            again.wait(60)
            ids = [answer["checkpoint_id"] for answer in answers]
            assert ids == sorted(ids)
            assert compared >= 2
        finally:
            server.terminate()


def test_answers_go_on_while_the_job_is_rescaled(start_job: Any, tmp_path: Path) -> None:
    """Up and down, by the command of a running job: the server asks nothing of its slots."""
    folder = tmp_path / "checkpoints"
    job = start_job(folder, program=JOB, master="threads[4]")
    job.wait_event("checkpoint_completed", lambda e: e["checkpoint_id"] >= 2)
    command = [*SERVE, str(folder), "--refresh", "50 ms", "--table", "remembered.items"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url, token = server.stdout.readline().strip(), server.stdout.readline().split()[1]
            client = StateClient(url, token)
            answers, compared = [client.get_many("remembered", "items", USERS)], 0
            for slots in (4, 1, 3):
                since = job.mark
                ask(str(folder), AskRescale(slots=slots))
                while not [e for e in job.events[since:] if e["event"] == "rescaled"]:
                    compared += ask_until(client, folder, answers, answers[-1]["checkpoint_id"])
                    answers.append(client.get_many("remembered", "items", USERS))
                compared += ask_until(client, folder, answers, answers[-1]["checkpoint_id"] + 2)
            ids = [answer["checkpoint_id"] for answer in answers]
            assert ids == sorted(ids)
            assert compared >= 3
        finally:
            server.terminate()
    job.kill_group()
    job.wait(60)


def ask_until(client: StateClient, folder: Path, answers: list[dict[str, Any]], checkpoint_id: int) -> int:
    """Ask until this checkpoint answers; how many answers were compared with read_state."""
    compared, deadline = 0, time.monotonic() + 120
    while answers[-1]["checkpoint_id"] < checkpoint_id:
        assert time.monotonic() < deadline, answers[-1]["checkpoint_id"]
        answer = client.get_many("remembered", "items", USERS)
        if answer["checkpoint_id"] != answers[-1]["checkpoint_id"]:
            compared += is_compared(folder, answer)
        answers.append(answer)
    return compared


def is_compared(folder: Path, answer: dict[str, Any]) -> bool:
    """Whether the checkpoint was still there to compare with."""
    try:
        stored = read_state(str(folder), answer["checkpoint_id"])
    except UsageError:
        return False  # retention has dropped it
    with stored:
        table = stored.table("remembered", "items")
        for user, rows in zip(USERS, answer["rows"], strict=True):
            assert sorted(map(str, rows)) == sorted(map(str, table.read([user]).to_pylist()))
        assert answer["offsets"]["bought"] == stored.table("bought").read().to_pylist()
    return True
