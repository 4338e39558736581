"""kill -9 of the Python worker, the driver and the server, in each step of micro-batches into MySQL, Redis,
OpenSearch, Cassandra, a receiver of requests, Delta Lake, Iceberg and files. PostgreSQL is in
test_structured_streaming_any_sink_kills.py, Kafka in test_structured_streaming_sink_kills.py.

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
from typing import Any, NamedTuple

import pytest
from pyiceberg.catalog import load_catalog

from tests.cassandra_server import KEYSPACE, PASSWORD, USER, CassandraServer
from tests.integration.killed_query import KilledQuery
from tests.java_server import JavaServer
from tests.mysql_server import WHY_NOT, MySqlServer
from tests.opensearch_server import OpenSearchServer
from tests.read_tables import read_delta, read_iceberg
from tests.redis_server import RedisServer
from tests.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1_800)]
WINDOWS = ("before-staging", "mid-stage", "before-commit", "after-commit")
"""In the order in which a batch comes to them."""
SERVER_WINDOWS = ("mid-stage", "before-commit")
"""Where a server is killed: while rows are staged, of which it knows nothing, and before it gets them."""
Rows = list[dict[str, Any]]


class Place(NamedTuple):
    """Where rows go."""

    options: dict[str, str]
    """What the format is given."""
    rows: Callable[[], Rows]
    """What is there."""
    server: MySqlServer | RedisServer | JavaServer | None = None
    """One that can be killed, and knows after its start what it knew before."""


@contextlib.contextmanager
def mysql(folder: Path) -> Iterator[Place]:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with MySqlServer() as server:
        columns = ("id", "user", "run")
        yield Place(
            {"url": server.url, "table": "killed", "create_table": "true"},
            lambda: [
                dict(zip(columns, row, strict=True))
                for row in server.rows("SELECT id, `user`, run FROM killed")
            ],
            server,
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

        options = {"url": server.url, "prefix": "killed", "key": "id", "form": "json"}
        yield Place(options, rows, server)


@contextlib.contextmanager
def opensearch(folder: Path) -> Iterator[Place]:
    with OpenSearchServer() as server:
        options = {"url": server.url, "index": "killed", "key": "id", "create_index": "true"}
        yield Place(options, lambda: [*server.documents("killed").values()], server)


@contextlib.contextmanager
def cassandra(folder: Path) -> Iterator[Place]:
    with CassandraServer() as server:
        server.ask(f'CREATE TABLE {KEYSPACE}.killed (id bigint PRIMARY KEY, "user" text, run int)')
        options = {"hosts": "127.0.0.1", "port": str(server.port), "username": USER, "password": PASSWORD}
        options |= {"keyspace": KEYSPACE, "table": "killed", "key": "id"}
        rows = f'SELECT id, "user", run FROM {KEYSPACE}.killed'
        yield Place(options, lambda: [row._asdict() for row in server.ask(rows)], server)


@contextlib.contextmanager
def http(folder: Path) -> Iterator[Place]:
    with WebhookReceiver() as receiver:
        url = f"http://127.0.0.1:{receiver.port}/rows"
        yield Place({"url": url, "batch_rows": "30"}, receiver.taken)


@contextlib.contextmanager
def delta(folder: Path) -> Iterator[Place]:
    path = str(folder / "table")
    yield Place({"path": path, "create_table": "true"}, lambda: read_delta(path))


@contextlib.contextmanager
def delta_by_key(folder: Path) -> Iterator[Place]:
    path = str(folder / "table")
    yield Place({"path": path, "create_table": "true", "key": "id"}, lambda: read_delta(path))


@contextlib.contextmanager
def iceberg(folder: Path) -> Iterator[Place]:
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/w"}

    def rows() -> Rows:
        return read_iceberg(load_catalog(None, **catalog).load_table("shop.killed").metadata_location)

    yield Place({"catalog": json.dumps(catalog), "table": "shop.killed", "create_table": "true"}, rows)


@contextlib.contextmanager
def iceberg_by_key(folder: Path) -> Iterator[Place]:
    with iceberg(folder) as place:
        yield place._replace(options={**place.options, "key": "id"})


@contextlib.contextmanager
def files(folder: Path) -> Iterator[Place]:
    out = folder / "out"

    def rows() -> Rows:
        return [json.loads(line) for path in out.glob("*.jsonl") for line in path.open()]

    yield Place({"path": str(out), "format": "jsonl"}, rows)


PLACES: dict[str, tuple[str, Callable[[Path], contextlib.AbstractContextManager[Place]]]] = {
    "mysql": ("onceflow-mysql", mysql),
    "redis": ("onceflow-redis", redis),
    "http": ("onceflow-http", http),
    "delta": ("onceflow-delta", delta),
    "delta by key": ("onceflow-delta", delta_by_key),
    "iceberg": ("onceflow-iceberg", iceberg),
    "iceberg by key": ("onceflow-iceberg", iceberg_by_key),
    "files": ("onceflow-files", files),
    "opensearch": ("onceflow-opensearch", opensearch),
    "cassandra": ("onceflow-cassandra", cassandra),
}


def kill(query: KilledQuery, whom: str, window: str, place: Place) -> None:
    """Add a batch, hit it in this window, and let it end; then the query goes on."""
    query.add_batch()
    query.set_gate(window)
    query.start()
    pid = query.wait_gate(window)
    if whom == "worker":
        os.kill(pid, signal.SIGKILL)
        assert query.wait_end()["event"] == "failed"
    elif whom == "driver":
        query.kill_driver()
    else:
        assert place.server is not None
        place.server.kill()
        query.open_gate(window)
        place.server.start()
        query.wait_end()  # it may have failed, or not have noticed
    for left in query.gates.iterdir():
        left.unlink()
    query.kills.append(f"{whom} | {window}")
    query.start()
    ended = query.wait_end()
    assert ended["event"] == "done", f"{query.kills}: {ended['error'][-4_000:]}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("where", PLACES)
def test_each_is_killed_in_every_step_in_any_order(where: str, seed: int, tmp_path: Path) -> None:
    """Eight kills for each seed, and two more where there is a server: 24 or 30 for each place."""
    name, open_place = PLACES[where]
    with open_place(tmp_path) as place:
        kills = [(whom, window) for whom in ("worker", "driver") for window in WINDOWS]
        if place.server is not None:
            kills += [("server", window) for window in SERVER_WINDOWS]
        random.Random(f"{where} {seed}").shuffle(kills)
        query = KilledQuery(tmp_path, {"format": name, "options": place.options})
        try:
            for whom, window in kills:
                kill(query, whom, window, place)
            query.check(place.rows())
            assert query.staged() == [], "files of dead attempts and of finished batches are swept"
        finally:
            query.close()
