"""A job that writes into PostgreSQL is killed inside its commits, and so is its server: all is there once."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.jobs.postgres_rows import USERS
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.postgres, pytest.mark.spark]
PROGRAM = Path(__file__).parent / "jobs" / "postgres_rows.py"
KINDS = ("slot", "driver and slots", "server", "frozen slot")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


class CommitHeld:
    """While it is entered, a transaction that writes into a table waits, with its ledger changed already."""

    def __init__(self, server: PostgresServer, table: str) -> None:
        self._connection = server.connect()
        self._server = server
        self._connection.execute("BEGIN")
        self._connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())

    def is_reached(self) -> bool:
        """Whether a writer waits for the lock."""
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname IS NOT NULL"
        )
        return bool(self._server.rows(waiting)[0])

    def let_go(self) -> None:
        self._connection.close()


class Prepared:
    """The window in which a transaction is prepared, and waits for the checkpoint to be durable."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def is_reached(self) -> bool:
        return bool(self._server.rows("SELECT gid FROM pg_prepared_xacts"))

    def let_go(self) -> None:
        """Nothing holds it."""


def check(server: PostgresServer, records: int) -> None:
    """Each record once, and the final count of each user."""
    for table in ("appended", "prepared"):
        rows = server.rows(f"SELECT count(*), count(DISTINCT number), min(number), max(number) FROM {table}")
        assert rows == [(records, records, 0, records - 1)], table
    assert server.rows("SELECT gid FROM pg_prepared_xacts") == []
    counted = server.rows('SELECT "user", times FROM counted')
    assert sorted(counted) == sorted((f"u{n}", len(range(n, records, USERS))) for n in range(USERS))


def run_with_kills(
    kinds: list[str], records: int, server: PostgresServer, start_job: Any, engine: Any, folder: Path
) -> None:
    """Each kill comes while a commit is held in one of two tables, or while one of the third is prepared;
    after a server's it comes back."""
    chance = random.Random(len(kinds))

    def start() -> Any:
        arguments = (server.url, str(records), "4000")
        options = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms"]
        return start_job(folder, *arguments, program=PROGRAM, master="local[2]", options=options)

    job = start()
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    for number, kind in enumerate(kinds):
        table = ("prepared", chance.choice(("appended", "counted")))[number % 2]
        held = Prepared(server) if table == "prepared" else CommitHeld(server, table)
        engine.wait_for(held.is_reached, job)
        mark = job.mark
        if kind == "driver and slots":
            job.kill_group()
            job.wait()
            held.let_go()
            job = start()
            job.wait_event("slots_started")
            continue
        if kind == "server":
            held.let_go()
            server.kill()
            server.start()
        elif kind == "slot":
            os.kill(chance.choice(job.slots()), signal.SIGKILL)
            held.let_go()
            job.wait_event("restarted", after=mark)
        else:
            zombie = chance.choice(job.slots())
            os.kill(zombie, signal.SIGSTOP)
            held.let_go()
            job.wait_event("restarted", after=mark, timeout=360)
        job.wait_event("checkpoint_completed", after=mark)
    assert job.wait(180) == 0, job.story()
    check(server, records)


def test_each_row_is_there_once_whoever_is_killed_inside_a_commit(
    server: PostgresServer, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    run_with_kills(["slot", "driver and slots", "server"], 30_000, server, start_job, engine, tmp_path / "ck")


@pytest.mark.soak
def test_twenty_four_kills(server: PostgresServer, start_job: Any, engine: Any, tmp_path: Path) -> None:
    run_with_kills([*KINDS] * 6, 400_000, server, start_job, engine, tmp_path / "ck")
