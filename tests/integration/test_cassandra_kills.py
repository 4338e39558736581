"""A job that writes into Cassandra is killed inside its commits, and so is its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cassandra_server import KEYSPACE, CassandraServer
from tests.upsert_kills import KINDS, run_with_kills

pytestmark = [pytest.mark.cassandra, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]


class Store(CassandraServer):
    """See StoreUnderTest. Each write has the length and the first bytes of a version in it."""

    name, rate, write_word = "cassandra", 100, b"\0\0\0\x08\0\x20\0"

    def address(self, port: int) -> str:
        return f"127.0.0.1:{port}"

    def numbers(self) -> list[int]:
        return sorted(row.number for row in self.ask(f"SELECT number FROM {KEYSPACE}.numbered"))

    def counts(self) -> Mapping[str, int]:
        return {row.user: row.times for row in self.ask(f'SELECT "user", times FROM {KEYSPACE}.counted')}


@pytest.fixture
def server() -> Iterator[Store]:
    with Store() as server:
        columns = 'number bigint, "user" text, times bigint'
        server.ask(f"CREATE TABLE {KEYSPACE}.numbered ({columns}, PRIMARY KEY (number))")
        server.ask(f'CREATE TABLE {KEYSPACE}.counted ({columns}, PRIMARY KEY ("user"))')
        yield server


def test_the_last_row_of_each_key_is_there_whoever_is_killed(
    server: Store, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    run_with_kills(["slot", "rewind", "server"], server, start_job, engine, tmp_path / "ck")


@pytest.mark.parametrize("part", range(4))
def test_six_kills(part: int, server: Store, start_job: Any, engine: Any, tmp_path: Path) -> None:
    run_with_kills([*KINDS[part:], *KINDS[:part]], server, start_job, engine, tmp_path / "ck")
