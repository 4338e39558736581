"""A job that follows a table of PostgreSQL is killed, and so is the server, while the table is written: each
change is there once, in its order."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceflow.runtime.records import RowKind
from onceflow.runtime.testing.connectors.folder_table import FolderTable
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres
PROGRAM = Path(__file__).parent / "jobs" / "postgres_cdc_copy.py"
KINDS = ("slot", "driver and slots", "server", "frozen slot")
KEYS = 500


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        server.execute(
            "CREATE TABLE items (id bigint PRIMARY KEY, name text NOT NULL)",
            "ALTER TABLE items REPLICA IDENTITY FULL",
            "CREATE PUBLICATION items FOR TABLE items",
        )
        yield server


class Writer:
    """Writes random changes until it is told to stop; goes on when the server comes back."""

    def __init__(self, server: PostgresServer) -> None:
        self._server, self._over = server, threading.Event()
        self.transactions = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pick = random.Random(3).randrange
        while not self._over.is_set():
            with suppress(psycopg.OperationalError), psycopg.connect(self._server.url) as connection:
                while not self._over.wait(0.003):
                    for _ in range(pick(1, 8)):
                        key, other, name = pick(KEYS), pick(KEYS), f"v{self.transactions}"
                        statement = (
                            f"INSERT INTO items VALUES ({key}, '{name}') ON CONFLICT DO NOTHING",
                            f"UPDATE items SET name = '{name}' WHERE id = {key}",
                            f"UPDATE items SET id = {other} WHERE id = {key} "
                            f"AND NOT EXISTS (SELECT FROM items WHERE id = {other})",
                            f"DELETE FROM items WHERE id = {key}",
                        )[pick(4)]
                        connection.execute(statement.encode())
                    connection.commit()
                    self.transactions += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def followed(folder: str) -> dict[int, str]:
    """The table that the changes lead to; each has to fit what came before."""
    state: dict[int, str] = {}
    for row in FolderTable(folder, takes_kinds=True).read().to_pylist():
        if row["row_kind"] in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            assert row["id"] not in state, f"{row} is there as {state[row['id']]}"
            state[row["id"]] = row["name"]
        else:
            assert state.pop(row["id"], None) == row["name"], f"{row} was not so"
    return state


def run_with_kills(
    kinds: list[str],
    rows: int,
    server: PostgresServer,
    start_job: Any,
    engine: Any,
    folder: Path,
    master: str,
) -> None:
    """The first kills come while the table is read, the others while its changes are."""
    chance = random.Random(len(kinds))
    server.execute(f"INSERT INTO items SELECT n, 'first' FROM generate_series({KEYS}, {KEYS + rows}) n")

    def start() -> Any:
        options = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms"]
        arguments = (folder / "ck", server.url, str(folder / "log"))
        return start_job(*arguments, program=PROGRAM, master=master, interval="100 ms", options=options)

    job, writer = start(), Writer(server)
    for kind in kinds:
        mark = job.mark
        for _ in range(chance.randrange(1, 4)):
            job.wait_event("checkpoint_completed", after=mark)
            mark = job.mark
        if kind == "driver and slots":
            job.kill_group()
            job.wait()
            job = start()
            continue
        if kind == "server":
            server.kill()
            server.start()
            continue
        sent = signal.SIGSTOP if kind == "frozen slot" else signal.SIGKILL
        os.kill(chance.choice(job.slots()), sent)
        job.wait_event("restarted", after=mark, timeout=360)
    writer.close()
    assert writer.transactions > 20
    query = "SELECT id, name FROM {} ORDER BY id"
    there = server.rows(query.format("items"))
    engine.wait_for(lambda: server.rows(query.format("followed")) == there, job, 120)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    assert sorted(followed(str(folder / "log")).items()) == there


def test_each_change_is_there_once_whoever_is_killed(
    server: PostgresServer, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    """On threads a slot dies with its driver; the soak below kills those of Spark."""
    kinds = ["driver and slots", "server", "driver and slots"]
    run_with_kills(kinds, 20_000, server, start_job, engine, tmp_path, "threads[2]")


@pytest.mark.soak
@pytest.mark.spark
def test_twenty_four_kills(server: PostgresServer, start_job: Any, engine: Any, tmp_path: Path) -> None:
    run_with_kills([*KINDS] * 6, 100_000, server, start_job, engine, tmp_path, "local[2]")
