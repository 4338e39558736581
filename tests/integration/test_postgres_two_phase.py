"""PostgresSink with prepared transactions: lost answers, what is left behind, and what is refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SinkContext, SinkWriter
from onceflow.runtime.errors import DataLossError, Fatal, OptionError
from onceflow.runtime.records import Records
from onceflow.sinks.postgres import PostgresSink
from tests.answer_proxy import AnswerProxy
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres
SCHEMA = pa.schema([("n", pa.int64())])
PREPARED = "SELECT gid FROM pg_prepared_xacts"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def table() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def writer(url: str, table: str, subtask: int = 0, parallelism: int = 1, attempt: int = 1) -> SinkWriter:
    """One of an attempt that starts from nothing."""
    sink = PostgresSink(url, table, create_table=True, delivery_timeout="5 s", two_phase=True)
    files = AttemptStagedFiles(MemoryStore(), attempt, "out", subtask)
    where = ("job", table, "out", subtask, parallelism, attempt, 0)
    return sink.open_writer(SinkContext(*where, files, SystemClock(), SCHEMA))


def write(to: SinkWriter, *rows: int) -> None:
    to.write(Records(pa.record_batch({"n": list(rows)}, schema=SCHEMA)))


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("statement", [b"PREPARE TRANSACTION", b"COMMIT PREPARED"])
def test_a_lost_answer_changes_nothing(
    statement: bytes, is_done: bool, server: PostgresServer, table: str
) -> None:
    with AnswerProxy(server.port) as proxy:
        proxy.swallow(statement, 1, is_done)
        out = writer(server.url_by(proxy.port), table)
        out.recover([])
        for checkpoint_id in (1, 2):
            write(out, checkpoint_id)
            out.pre_commit(checkpoint_id).stage()
            out.commit(checkpoint_id)
        out.close()
        assert proxy.has_swallowed
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2]
    assert server.rows(PREPARED) == []


def test_what_was_never_durable_is_rolled_back_by_the_next_attempt(
    server: PostgresServer, table: str
) -> None:
    """The same for what a subtask has left that there is no more."""
    for subtask in range(2):
        out = writer(server.url, table, subtask, 2)
        out.recover([])
        write(out, subtask)
        out.pre_commit(1).stage()
        out.close()
    assert len(server.rows(PREPARED)) == 2
    out = writer(server.url, table, attempt=2)
    out.recover([])
    assert server.rows(PREPARED) == []
    write(out, 7)
    out.pre_commit(1).stage()
    out.commit(1)
    out.close()
    assert server.rows(f"SELECT n FROM {table}") == [7]


def test_a_promise_that_somebody_has_rolled_back_is_told(server: PostgresServer, table: str) -> None:
    out = writer(server.url, table)
    out.recover([])
    write(out, 1)
    out.pre_commit(1).stage()
    server.execute(*(f"ROLLBACK PREPARED '{name}'" for name in server.rows(PREPARED)))
    with pytest.raises(DataLossError, match="was promised for checkpoint 1, and the ledger says nothing"):
        out.commit(1)
    out.close()


def test_what_can_not_be_prepared_is_refused(server: PostgresServer, table: str) -> None:
    with pytest.raises(OptionError, match="two_phase=True appends only"):
        PostgresSink(server.url, table, key="n", two_phase=True)
    server.execute(f"CREATE TABLE {table} (n inet)")
    sink = PostgresSink(server.url, table, two_phase=True)
    schema = pa.schema([("n", pa.string())])
    files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
    out = sink.open_writer(SinkContext("job", table, "out", 0, 1, 1, 0, files, SystemClock(), schema))
    with pytest.raises(Fatal, match=r"column 'n' of table .* is inet, which the server reads from text"):
        out.recover([])
    out.close()


def test_a_server_without_prepared_transactions_is_refused(table: str) -> None:
    with PostgresServer({"max_prepared_transactions": "0"}) as server:
        out = writer(server.url, table)
        with pytest.raises(Fatal, match="max_prepared_transactions is 0: set it to the number of subtasks"):
            out.recover([])
        out.close()
