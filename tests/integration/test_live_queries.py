"""Live answers of a job that runs: newer than any checkpoint, never silently of one, also after a rescale."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceflow import StateClient
from onceflow.cli.live_query import ask_live
from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskRescale
from onceflow.runtime.errors import Retryable, UsageError

pytestmark = [pytest.mark.timeout(600)]
JOB = Path(__file__).parent / "jobs" / "remembered.py"
USERS = [f"user-{n}" for n in range(8)]
SERVE = [sys.executable, "-u", "-c", "from onceflow.cli.app import main; main()", "serve-state"]
DEADLINE_S = 120.0
SIDES = (("left", "right", "user"), ("right", "left", "visitor"))
"""The column that a row of each side of the join is in, the other one, and what the key is called there."""


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_live_answers_are_ahead_of_checkpoints_and_follow_a_rescale(
    start_job: Any, tmp_path: Path, backend: str
) -> None:
    folder = tmp_path / "checkpoints"
    options = ["--state-backend", backend]
    of = {"program": JOB, "master": "threads[3]", "parallelism": 3, "interval": "2 s", "options": options}
    job = start_job(folder, "met", **of)
    job.wait_event("checkpoint_completed")
    with subprocess.Popen([*SERVE, str(folder)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url, token = server.stdout.readline().strip(), server.stdout.readline().split()[1]
            client = StateClient(url, token)
            attempts = [check(client, folder)]
            for slots in (1, 2):
                since = job.mark
                ask(str(folder), AskRescale(slots=slots))
                wait_until(lambda since=since: [e for e in job.events[since:] if e["event"] == "rescaled"])
                attempts.append(check(client, folder))
            assert attempts == sorted(set(attempts)), "an answer says of which attempt it is"
            with pytest.raises(UsageError, match="keeps no state for 'bought'"):
                client.get("bought", "offsets", "user-1", live=True)
            job.kill_group()
            assert job.wait(60) != 0
            with pytest.raises(Retryable, match="a live answer comes from the job, and no job runs on"):
                client.get("remembered", "items", "user-1", live=True)
            assert client.get("remembered", "items", "user-1")["rows"], "whoever asks for it has it"
        finally:
            server.terminate()


def check(client: StateClient, folder: Path) -> int:
    """Answers are of all keys and never go back within an attempt; they come before their checkpoint does."""
    before = wait_until(lambda: try_live(client))
    while True:
        answer = wait_until(lambda: try_live(client))
        assert answer["is_live"]
        assert all(answer["rows"]), "whoever owns a key, it is found"
        seen, earlier = (list(map(newest_of, each["rows"])) for each in (answer, before))
        if answer["attempt"] == before["attempt"]:
            assert all(map(int.__ge__, seen, earlier)), (seen, earlier)
            if answer["checkpoint_id"] == before["checkpoint_id"] and all(map(int.__gt__, seen, earlier)):
                break  # two moments behind one checkpoint
        before = answer
    check_window(client)
    check_join(client)
    asked = ask_live(str(folder), "remembered", "recent", USERS[:2])
    assert asked["attempt"] == answer["attempt"]
    assert all(map(int.__ge__, map(newest_of, asked["rows"]), seen))
    return int(answer["attempt"])


def check_window(client: StateClient) -> None:
    """The window that is open is told, and is ahead of its checkpoint."""
    while True:
        kept = client.get_many("totals", "windows", USERS)
        answer = wait_until(lambda: try_live(client, "totals", "windows"))
        rows = [row for (row,) in answer["rows"]]
        assert [(row["user"], row["window_start"]) for row in rows] == [(user, 0) for user in USERS]
        if answer["checkpoint_id"] == kept["checkpoint_id"]:
            now, then = ([row["value"] for row in mine] for mine in (rows, [row for (row,) in kept["rows"]]))
            assert all(a["n"] >= b["n"] and a["spent"] >= b["spent"] for a, b in zip(now, then, strict=True))
            if any(a["n"] > b["n"] for a, b in zip(now, then, strict=True)):
                return


def check_join(client: StateClient) -> None:
    """The rows of both sides of each key are told."""

    def are_there() -> bool:
        answer = try_live(client, "met", "rows")
        if answer is None:
            return False
        for user, rows in zip(USERS, answer["rows"], strict=True):
            for row in rows:
                side, other, name = SIDES[row["is_right"]]
                assert (row["user"], row[side][name], row[other]) == (user, user, None)
        return all(any(not row["is_right"] for row in rows) for rows in answer["rows"])

    wait_until(are_there)


def try_live(client: StateClient, uid: str = "remembered", state: str = "recent") -> dict[str, Any] | None:
    try:
        return client.get_many(uid, state, USERS, live=True)
    except Retryable:
        return None  # an attempt that has just begun


def newest_of(rows: list[dict[str, Any]]) -> int:
    """The number of the last purchase that a user is known for."""
    return max(int(row["value"]) for row in rows)


def wait_until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (result := found()):
        assert time.monotonic() < deadline
    return result
