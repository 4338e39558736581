"""MySqlSink on a real MariaDB: zombies, locks, lost answers and a killed server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
import pytest

from onceflow.connectors.mysql.ledger import Ledger
from onceflow.connectors.mysql.session import MySqlDialect, MySqlSession
from onceflow.connectors.sql_tables.table import TableName
from onceflow.connectors.sql_tables.target import Output, SqlTarget
from onceflow.connectors.staged_commits.owner import OwnerCommits
from tests.mysql_server import WHY_NOT, MySqlServer, appending_settings
from tests.sql_cases import Eager, SqlTargetCases, batches, owner

pytestmark = [pytest.mark.mysql, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        yield server


@pytest.fixture
def table() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def target(url: str, table: str, attempt: int) -> SqlTarget[MySqlSession]:
    dialect = MySqlDialect(appending_settings(url, table, SCHEMA), owner(table, attempt))
    return SqlTarget(dialect, Output("out", TableName.of(table), False))


class TestTarget(SqlTargetCases):
    commit_word: ClassVar[bytes] = b"\x03COMMIT"

    def target(self, url: str, table: str, attempt: int) -> SqlTarget[MySqlSession]:
        return target(url, table, attempt)

    def claim_alone(self, server: MySqlServer, table: str, attempt: int) -> int:
        with server.connect() as connection:
            return Ledger(TableName.of("onceflow_ledger"), owner(table, attempt)).claim(connection)


def test_a_row_that_others_have_locked_is_waited_for(server: MySqlServer, table: str) -> None:
    """The server says so after its time, and rolls back the statement alone: we the ledger, too."""
    server.execute("SET GLOBAL innodb_lock_wait_timeout = 1", f"CREATE TABLE {table} (n int UNIQUE)")
    other = server.connect()

    class LettingGo(Eager):
        def wait(self, error: Exception) -> None:
            super().wait(error)
            other.rollback()

    patience = LettingGo()
    commits = OwnerCommits("out", target(server.url, table, 1), patience, None)
    commits.commit(1, lambda: batches(1))
    other.begin()
    with other.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES (3)")
    commits.commit(2, lambda: batches(2, 3))
    commits.close()
    other.close()
    server.execute("SET GLOBAL innodb_lock_wait_timeout = 50")
    (error,) = patience.errors
    assert "(error 1205)" in str(error)
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2, 3]
