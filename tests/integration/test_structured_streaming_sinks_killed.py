"""kill -9 of the Python worker and the driver, in each step of micro-batches into MySQL, Redis, a receiver of
requests and Delta Lake. PostgreSQL, and its server, are in test_structured_streaming_any_sink_kills.py.

The judge is what is there: each row of the input once, and all rows of a batch from one attempt.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.killed_query import KilledQuery
from tests.mysql_server import WHY_NOT, MySqlServer
from tests.read_tables import read_delta
from tests.redis_server import RedisServer
from tests.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]
WINDOWS = ("before-staging", "mid-stage", "before-commit", "after-commit")
"""In the order in which a batch comes to them."""
Rows = list[dict[str, Any]]
Place = tuple[dict[str, str], Callable[[], Rows]]
"""The options of a format, and how the rows are read that are there."""


@contextlib.contextmanager
def mysql(folder: Path) -> Iterator[Place]:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with MySqlServer() as server:
        columns = ("id", "user", "run")
        yield (
            {"url": server.url, "table": "killed", "create_table": "true"},
            lambda: [
                dict(zip(columns, row, strict=True))
                for row in server.rows("SELECT id, `user`, run FROM killed")
            ],
        )


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Place]:
    """Rows by key: one that is there from two attempts would have the later one's run."""
    with RedisServer() as server:

        def rows() -> Rows:
            with server.client() as client:
                return [
                    {"id": int(key), **json.loads(str(client.get(f"killed:{key}")))}
                    for key in server.keys("killed")
                ]

        yield {"url": server.url, "prefix": "killed", "key": "id", "form": "json"}, rows


@contextlib.contextmanager
def http(folder: Path) -> Iterator[Place]:
    with WebhookReceiver() as receiver:
        url = f"http://127.0.0.1:{receiver.port}/rows"
        yield {"url": url, "batch_rows": "30"}, receiver.taken


@contextlib.contextmanager
def delta(folder: Path) -> Iterator[Place]:
    path = str(folder / "table")
    yield {"path": path, "create_table": "true"}, lambda: read_delta(path)


@contextlib.contextmanager
def delta_by_key(folder: Path) -> Iterator[Place]:
    path = str(folder / "table")
    yield {"path": path, "create_table": "true", "key": "id"}, lambda: read_delta(path)


PLACES: dict[str, tuple[str, Callable[[Path], contextlib.AbstractContextManager[Place]]]] = {
    "mysql": ("onceflow-mysql", mysql),
    "redis": ("onceflow-redis", redis),
    "http": ("onceflow-http", http),
    "delta": ("onceflow-delta", delta),
    "delta by key": ("onceflow-delta", delta_by_key),
}


def kill(query: KilledQuery, whom: str, window: str) -> None:
    """Add a batch, hit it in this window, and let it end; then the query goes on."""
    query.add_batch()
    query.set_gate(window)
    query.start()
    pid = query.wait_gate(window)
    if whom == "worker":
        os.kill(pid, signal.SIGKILL)
        assert query.wait_end()["event"] == "failed"
    else:
        query.kill_driver()
    for left in query.gates.iterdir():
        left.unlink()
    query.kills.append(f"{whom} | {window}")
    query.start()
    ended = query.wait_end()
    assert ended["event"] == "done", f"{query.kills}: {ended['error'][-4_000:]}"


@pytest.mark.parametrize("where", PLACES)
def test_worker_and_driver_are_killed_in_every_step(where: str, tmp_path: Path) -> None:
    """Eight kills for each, in any order."""
    name, open_place = PLACES[where]
    kills = [(whom, window) for whom in ("worker", "driver") for window in WINDOWS]
    random.Random(where).shuffle(kills)
    with open_place(tmp_path) as (options, rows):
        query = KilledQuery(tmp_path, {"format": name, "options": options})
        try:
            for whom, window in kills:
                kill(query, whom, window)
            query.check(rows())
            assert query.staged() == [], "files of dead attempts and of finished batches are swept"
        finally:
            query.close()
