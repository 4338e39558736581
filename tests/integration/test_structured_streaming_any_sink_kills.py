"""kill -9 of the Python worker, the driver and the server, in each step of a micro-batch into PostgreSQL.

The judge is the table: each row of the input once, and all rows of a batch from one attempt.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.killed_query import KilledQuery
from tests.integration.test_postgres_kills import CommitHeld
from tests.postgres_server import PostgresServer

pytestmark = [pytest.mark.postgres, pytest.mark.spark]
IN_THE_TRANSACTION = "inside the transaction"
"""All rows are promised, and the ledger is changed already."""
WINDOWS = (
    *("before-staging", "mid-stage", "after-staging", "before-commit"),
    *(IN_THE_TRANSACTION, "after-commit"),
)
"""In the order in which a batch comes to them."""


class KilledTable(KilledQuery):
    """A query into a table."""

    def __init__(self, server: PostgresServer, folder: Path, **options: str) -> None:
        server.execute('CREATE TABLE killed (id bigint, "user" text, run int)')
        given = {"url": server.url, "table": "killed", "delivery_timeout": "60 s", **options}
        super().__init__(folder, {"format": "onceflow-postgres", "options": given})
        self.server = server
        self._held: CommitHeld | None = None

    def reach(self, window: str, wait_for: Any) -> int:
        """Start the query; returns when it stands in this window, with the id of the process there."""
        gate = "before-commit" if window == IN_THE_TRANSACTION else window
        self.set_gate(gate)
        self.start()
        pid = self.wait_gate(gate)
        if window == IN_THE_TRANSACTION:
            self._held = CommitHeld(self.server, "killed")
            self.open_gate(gate)
            wait_for(self._held.is_reached, self)
        return pid

    def calm(self) -> None:
        if self._held is not None:
            self._held.let_go()
        self._held = None
        for left in self.gates.iterdir():
            left.unlink()

    def kill(self, whom: str, window: str, wait_for: Any) -> None:
        """Add a batch, hit it in this window, and let it end."""
        self.add_batch()
        pid = self.reach(window, wait_for)
        if whom == "worker":
            os.kill(pid, signal.SIGKILL)
            assert self.wait_end()["event"] == "failed"
            self.calm()
        elif whom == "driver":
            self.kill_driver()
            self.calm()
        else:
            self.server.kill()
            self.calm()
            self.open_gate(window)
            self.server.start()
            self.wait_end()
            self.calm()
        self.kills.append(f"{whom} | {window}")
        self.start()
        ended = self.wait_end()
        assert ended["event"] == "done", f"{self.kills}: {ended['error'][-4_000:]}"

    def judge(self) -> None:
        found = self.server.rows('SELECT id, "user", run FROM killed')
        self.check([dict(zip(("id", "user", "run"), row, strict=True)) for row in found])
        assert self.staged() == [], "files of dead attempts and of finished batches are swept"


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[KilledTable]:
    with PostgresServer() as server:
        query = KilledTable(server, tmp_path)
        yield query
        query.close()


@pytest.mark.timeout(600)
def test_each_row_is_there_once_whoever_is_killed_around_a_commit(killed: KilledTable, engine: Any) -> None:
    """The driver, after the commit and before Spark knows of it; then the same batch is run again with other
    rows. The server inside its transaction is in the soak below, and in test_postgres_kills.py."""
    killed.kill("driver", "after-commit", engine.wait_for)
    killed.judge()


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("whom", ["worker", "driver", "server"])
def test_each_is_killed_in_every_step_in_any_order(
    killed: KilledTable, engine: Any, whom: str, seed: int
) -> None:
    """36 kills: each kind in each step, once for each seed."""
    windows = list(WINDOWS)
    random.Random(seed).shuffle(windows)
    for window in windows:
        killed.kill(whom, window, engine.wait_for)
    killed.judge()
    assert len(killed.kills) == 6
