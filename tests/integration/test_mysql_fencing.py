"""MySqlSink on a real MariaDB: zombies, locks, lost answers and a killed server."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from onceflow.connectors.mysql.ledger import Ledger
from onceflow.connectors.mysql.session import MySqlDialect, MySqlSession
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.table import TableName
from onceflow.connectors.sql_tables.target import Output, SqlTarget
from onceflow.connectors.staged_commits.owner import OwnerCommits
from onceflow.runtime.errors import Fenced, Indeterminate, Retryable
from tests.mysql_server import WHY_NOT, MySqlServer, appending_settings
from tests.postgres_server import CommitProxy

pytestmark = [pytest.mark.mysql, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCHEMA = pa.schema([("n", pa.int64())])
WAIT_S = 240


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        yield server


@pytest.fixture
def table() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


# --- Zombies and lost answers ---------------------------------------------------------------------------


class Eager:
    """A Patience that waits for nothing, and counts."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def wait(self, error: Exception) -> None:
        self.errors.append(error)

    def reset(self) -> None: ...


def target(server: MySqlServer, table: str, attempt: int, url: str = "") -> SqlTarget[MySqlSession]:
    owner = LedgerOwner(table, "out", "0", "job", attempt)
    dialect = MySqlDialect(appending_settings(url or server.url, table, SCHEMA), owner)
    return SqlTarget(dialect, Output("out", TableName.of(table), False))


def batches(*numbers: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array(numbers, pa.int64())})


def test_a_writer_that_hangs_inside_its_commit_is_ended_by_the_next(server: MySqlServer, table: str) -> None:
    """It holds the ledger's row locked, and would for ever."""
    zombie, hangs, wakes = target(server, table, 1), threading.Event(), threading.Event()
    outcome: list[Exception] = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(1)
        hangs.set()
        wakes.wait(WAIT_S)
        yield from batches(2)

    def commit() -> None:
        try:
            zombie.commit(1, rows())
        except Exception as error:
            outcome.append(error)

    assert zombie.claim() == 0
    thread = threading.Thread(target=commit)
    thread.start()
    assert hangs.wait(WAIT_S)
    newer = target(server, table, 2)
    assert newer.claim() == 0
    newer.commit(1, batches(1))
    wakes.set()
    thread.join(WAIT_S)
    (error,) = outcome
    assert isinstance(error, Retryable)
    with pytest.raises(Fenced):
        OwnerCommits("out", zombie, Eager(), 0).commit(1, lambda: batches(9))
    assert server.rows(f"SELECT n FROM {table}") == [1]
    newer.close()


def test_an_older_attempt_that_is_between_two_commits_is_fenced(server: MySqlServer, table: str) -> None:
    older, newer = target(server, table, 1), target(server, table, 2)
    assert older.claim() == 0
    older.commit(1, batches(1))
    assert newer.claim() == 1
    with pytest.raises(Retryable):
        older.commit(2, batches(2))
    with pytest.raises(Fenced):
        older.claim()
    newer.commit(2, batches(3))
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 3]
    newer.close()


def test_one_whose_connection_could_not_be_ended_is_fenced_by_the_ledger(
    server: MySqlServer, table: str
) -> None:
    older = target(server, table, 1)
    assert older.claim() == 0
    with server.connect() as connection:
        newer = Ledger(TableName.of("onceflow_ledger"), LedgerOwner(table, "out", "0", "job", 2))
        assert newer.claim(connection) == 0
    with pytest.raises(Fenced, match="a newer attempt writes the output of sink 'out', subtask 0"):
        older.commit(1, batches(1))
    assert server.rows(f"SELECT n FROM {table}") == []


def test_a_row_that_others_have_locked_is_waited_for(server: MySqlServer, table: str) -> None:
    """The server says so after its time, and rolls back the statement alone: we the ledger, too."""
    server.execute("SET GLOBAL innodb_lock_wait_timeout = 1", f"CREATE TABLE {table} (n int UNIQUE)")
    other = server.connect()

    class LettingGo(Eager):
        def wait(self, error: Exception) -> None:
            super().wait(error)
            other.rollback()

    patience = LettingGo()
    commits = OwnerCommits("out", target(server, table, 1), patience, None)
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


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
def test_a_commit_without_an_answer_is_decided_by_the_ledger(
    is_done: bool, server: MySqlServer, table: str
) -> None:
    """The connection breaks when COMMIT is sent: before the server gets it, or before it has answered."""
    with CommitProxy(server.port, is_done, b"\x03COMMIT") as proxy:
        patience = Eager()
        commits = OwnerCommits("out", target(server, table, 1, server.url_by(proxy.port)), patience, None)
        proxy.has_broken = True  # a claim commits, too
        commits.claim(0)
        proxy.has_broken = False
        commits.commit(1, lambda: batches(1, 2))
        commits.commit(2, lambda: batches(3))
        commits.close()
    assert [type(error) for error in patience.errors] == [Indeterminate]
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2, 3]


def test_a_server_that_is_killed_comes_back_with_all_that_was_committed(
    server: MySqlServer, table: str
) -> None:
    commits = OwnerCommits("out", target(server, table, 1), Eager(), None)
    commits.commit(1, lambda: batches(1))
    server.kill()
    restarting = threading.Thread(target=server.start)
    restarting.start()
    commits.commit(2, lambda: batches(2))
    restarting.join(WAIT_S)
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2]
    commits.close()
