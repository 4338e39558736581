"""PostgresSink on a real PostgreSQL: the contract, types, keys, bad rows, zombies and lost answers."""

from __future__ import annotations

import datetime as dt
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any, ClassVar

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.connectors.postgres.ledger import Ledger
from onceflow.connectors.postgres.settings import PostgresSettings
from onceflow.connectors.postgres.target import PostgresTarget
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.table import TableName
from onceflow.connectors.staged_commits.owner import OwnerCommits
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Fenced, Indeterminate, JobFailedError, Retryable
from onceflow.runtime.records import Records, RowKind
from onceflow.sinks.postgres import PostgresSink
from onceflow.testing.kit import SinkKit
from tests.postgres_server import CommitProxy, PostgresServer

pytestmark = pytest.mark.postgres
SCHEMA = pa.schema([("n", pa.int64())])
WAIT_S = 240


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def table() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


# --- The contract ---------------------------------------------------------------------------------------


class TestAppending(SinkKit):
    key: ClassVar[str | None] = None
    is_two_phase: ClassVar[bool] = False

    @pytest.fixture(autouse=True)
    def _server(self, server: PostgresServer) -> None:
        self.settings["port"] = server.port

    @property
    def url(self) -> str:
        return f"postgresql://onceflow@127.0.0.1:{self.settings['port']}/postgres"

    def prepare(self) -> None:
        self.settings["table"] = f"t{uuid.uuid4().hex[:10]}"

    def sink(self) -> PostgresSink:
        table = str(self.settings["table"])
        return PostgresSink(
            self.url,
            table,
            key=self.key,
            create_table=True,
            delivery_timeout="1 s",
            two_phase=self.is_two_phase,
        )

    def visible(self) -> list[int]:
        with psycopg.connect(self.url) as connection, suppress(psycopg.errors.UndefinedTable):
            return [n for (n,) in connection.execute(f"SELECT n FROM {self.settings['table']}".encode())]
        return []


class TestByKey(TestAppending):
    key = "n"


class TestTwoPhase(TestAppending):
    is_two_phase = True


# --- Values ---------------------------------------------------------------------------------------------

NOON = dt.datetime(2026, 2, 28, 12, 0, 0, 123456)
VALUES: list[tuple[str, pa.DataType, list[Any]]] = [
    ("boolean", pa.bool_(), [True, False]),
    ("smallint", pa.int64(), [-(2**15), 2**15 - 1]),
    ("integer", pa.int64(), [-(2**31), 7]),
    ("bigint", pa.int32(), [-(2**31), 7]),
    ("numeric", pa.uint64(), [0, 2**64 - 1]),
    ("numeric(10,2)", pa.decimal128(12, 4), [Decimal("1.5000"), Decimal("-2.25")]),
    ("real", pa.float32(), [0.5, -1.25]),
    ("double precision", pa.float64(), [0.1, float("inf")]),
    ("text", pa.string(), ["", "ünï", "a\tb\n\\N", "😀"]),
    ("varchar(5)", pa.large_string(), ["abc"]),
    ("bytea", pa.binary(), [b"", b"\x00\xff"]),
    ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 2, 28)]),
    ("time", pa.time64("us"), [dt.time(23, 59, 59, 999999)]),
    ("timestamp", pa.timestamp("ns"), [NOON]),
    ("timestamptz", pa.timestamp("ms", "Europe/Berlin"), [dt.datetime(2026, 7, 1, tzinfo=dt.UTC)]),
    ("interval", pa.duration("ms"), [dt.timedelta(days=2, seconds=5)]),
    ("uuid", pa.string(), ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"]),
    ("jsonb", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x", "y"]}]),
    ("json", pa.string(), ['{"a": [1, 2]}']),
    ("jsonb", pa.list_(pa.int64()), [[1, 2], []]),
    ("bigint[]", pa.list_(pa.int32()), [[1, None, 3], []]),
    ("text[]", pa.list_(pa.string()), [["a", "b,c"]]),
    ("inet", pa.string(), ["10.0.0.1"]),
    ("mood", pa.string(), ["glad"]),
    ("short", pa.string(), ["ab"]),
]


@pytest.mark.parametrize(("declared", "arrow", "values"), VALUES, ids=[f"{d} {a}" for d, a, _ in VALUES])
def test_values_arrive_as_they_are(
    declared: str, arrow: pa.DataType, values: list[Any], server: PostgresServer, table: str
) -> None:
    """Null too, and the same by COPY alone as by way of a table beside it."""
    if not server.rows("SELECT 1 FROM pg_type WHERE typname = 'mood'"):
        server.execute(
            "CREATE TYPE mood AS ENUM ('glad', 'sad')",
            "CREATE DOMAIN short AS text CHECK (length(VALUE) < 3)",
        )
    values = [*values, None]
    batch = pa.record_batch([pa.array(range(len(values))), pa.array(values, arrow)], names=["n", "v"])
    for name, key in ((table, None), (f"{table}_keyed", "n")):
        server.execute(f"CREATE TABLE {name} (n bigint PRIMARY KEY, v {declared})")
        job = Job("values")
        job.from_records(pa.Table.from_batches([batch])).sink_to(PostgresSink(server.url, name, key=key))
        job.run(master="threads[1]")
        found = server.rows(f"SELECT v FROM {name} ORDER BY n")
        assert list(map(plain, found)) == list(map(plain, values))


def plain(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{"):
        return json.loads(value)
    return str(value) if isinstance(value, uuid.UUID | IPv4Address) else value


def test_a_table_is_made_from_the_rows(server: PostgresServer, table: str) -> None:
    """It has a primary key, and a type for each column."""
    rows = {"id": 1, "who": "ann", "at": NOON, "price": Decimal("1.20"), "tags": ["a"], "more": {"a": 1}}
    job = Job("made")
    job.from_records([rows]).sink_to(PostgresSink(server.url, f"public.{table}", key="id", create_table=True))
    job.run(master="threads[1]")
    assert server.rows(f"SELECT id, who, at, price, tags, more FROM {table}") == [
        (1, "ann", NOON, Decimal("1.20"), ["a"], {"a": 1})
    ]


@pytest.mark.parametrize(
    ("ddl", "key", "row", "sentence"),
    [
        (
            "",
            None,
            {"n": 1},
            r"there is no table t\w+, or it may not be seen: create it, or say create_table",
        ),
        ("(m int)", None, {"n": 1}, r"has no column 'n'; it has m"),
        (
            "(n int, m int NOT NULL)",
            None,
            {"n": 1},
            r"column 'm' of table t\w+ is NOT NULL without a default",
        ),
        ("(n int)", "n", {"n": 1}, r"no unique index on just that: CREATE UNIQUE INDEX ON t\w+ \(n\)"),
        ("(n int GENERATED ALWAYS AS (1) STORED)", None, {"n": 1}, "column 'n' of table .* is generated"),
        (
            "(n timestamptz)",
            None,
            {"n": NOON},
            "no zone would be read as another one; make the column timestamp",
        ),
        ("(n real)", None, {"n": 0.1}, "digits would be lost; make the column double precision"),
        ("(n int)", None, {"n": "x"}, r"is string in the rows and integer in the table, which does not fit"),
        (
            "(n text)",
            None,
            {"n": 1},
            r"is int64 in the rows and text .*make the column bigint, or cast in the job",
        ),
    ],
)
def test_what_does_not_fit_ends_in_a_sentence(
    ddl: str, key: str | None, row: dict[str, Any], sentence: str, server: PostgresServer, table: str
) -> None:
    if ddl:
        server.execute(f"CREATE TABLE {table} {ddl}")
    job = Job("unfit")
    job.from_records([row]).sink_to(PostgresSink(server.url, table, key=key), uid="out")
    with pytest.raises(JobFailedError, match=f"sink 'out': .*{sentence}"):
        job.run(master="threads[1]")


def test_a_database_that_can_never_be_written_to_ends_the_job_at_once(server: PostgresServer) -> None:
    job = Job("wrong")
    job.from_records([{"n": 1}]).sink_to(PostgresSink(server.url.replace("/postgres", "/nowhere"), "t"))
    with pytest.raises(JobFailedError, match='database "nowhere" does not exist'):
        job.run(master="threads[1]")


# --- By key ---------------------------------------------------------------------------------------------


def test_the_last_row_of_a_key_counts_and_deletes_delete(server: PostgresServer, table: str) -> None:
    """Updates that move a row to another key take the old one away; several checkpoints."""
    sink = PostgresSink(server.url, table, key=["a", "b"], create_table=True)
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
    writer = sink.open_writer(SinkContext("job", table, "out", 0, 1, 1, 0, files, SystemClock(), schema))
    writer.recover([])
    new, before, after, gone = RowKind
    checkpoints = [
        [(new, 1, "x", 1), (new, 1, "y", 2), (new, 1, "x", 3), (new, 2, "x", 4), (gone, 2, "x", 4)],
        [(before, 1, "y", 2), (after, 1, "z", 5), (before, 1, "x", 3), (after, 1, "x", 6)],
        [(gone, 1, "z", 5), (new, 1, "z", 7), (gone, 9, "q", 0)],
    ]
    seen = []
    for n, rows in enumerate(checkpoints, 1):
        kinds, *columns = zip(*rows, strict=True)
        batch = pa.record_batch([pa.array(c) for c in columns], schema=schema)
        writer.write(Records(batch, kind=np.array(kinds, np.int8)))
        writer.pre_commit(n).stage()
        writer.commit(n)
        seen.append(server.rows(f"SELECT a, b, v FROM {table} ORDER BY a, b"))
    writer.close()
    assert seen == [[(1, "x", 3), (1, "y", 2)], [(1, "x", 6), (1, "z", 5)], [(1, "x", 6), (1, "z", 7)]]


def test_a_null_in_a_key_is_a_bad_row_whatever_the_index_allows(server: PostgresServer, table: str) -> None:
    server.execute(f"CREATE TABLE {table} (n int UNIQUE, v int)")
    job = Job("nulls")
    rows = pa.table({"n": pa.array([1, None, 2], pa.int64()), "v": [7, 8, 9]})
    job.from_records(rows).sink_to(PostgresSink(server.url, table, key="n", bad_rows_to=f"{table}_bad"))
    job.run(master="threads[1]")
    assert server.rows(f"SELECT n, v FROM {table} ORDER BY n") == [(1, 7), (2, 9)]
    assert server.rows(f'SELECT reason, "constraint" FROM {table}_bad') == [("key column 'n' is null", "n")]


# --- Rows that are refused ------------------------------------------------------------------------------


def test_bad_rows_go_to_a_table_of_their_own_once(server: PostgresServer, table: str) -> None:
    """Named by constraint, or by column where the value can't even be sent; all others are written."""
    server.execute(f"CREATE TABLE {table} (n int CONSTRAINT small CHECK (n < 900), who varchar(3))")
    rows = [{"n": n, "who": "abc"} for n in range(1_000)]
    rows[5]["n"], rows[7]["who"] = 3_000_000_000, "too long"
    job = Job("bad")
    sink = PostgresSink(server.url, table, bad_rows_to=f"{table}_bad")
    job.from_records(rows).sink_to(sink, uid="out")
    job.run(master="threads[2]")
    assert server.rows(f"SELECT count(*) FROM {table}") == [898]
    bad = server.rows(f"SELECT \"constraint\", sqlstate, row::jsonb -> 'n' FROM {table}_bad ORDER BY 3")
    assert bad[:2] == [(None, "22001", 7), ("small", "23514", 900)]
    assert bad[-1] == ("n", None, 3_000_000_000)
    assert len(bad) == 102


def test_without_one_a_bad_row_ends_the_job_and_nothing_is_written(
    server: PostgresServer, table: str
) -> None:
    server.execute(f"CREATE TABLE {table} (n int CONSTRAINT small CHECK (n <> 7))")
    job = Job("bad")
    job.from_records([{"n": n} for n in range(10)]).sink_to(PostgresSink(server.url, table), uid="out")
    with pytest.raises(JobFailedError, match=r"refuses a row \(constraint small\): .*The row: {\"n\": 7}"):
        job.run(master="threads[1]")
    assert server.rows(f"SELECT count(*) FROM {table}") == [0]


def test_a_constraint_that_is_checked_at_the_end_is_found_too(server: PostgresServer, table: str) -> None:
    server.execute(f"CREATE TABLE {table} (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    job = Job("bad")
    sink = PostgresSink(server.url, table, bad_rows_to=f"{table}_bad")
    job.from_records([{"n": n} for n in (1, 2, 1)]).sink_to(sink, uid="out")
    job.run(master="threads[1]")
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2]
    assert server.rows(f"SELECT row FROM {table}_bad") == ['{"n": 1}']


# --- Zombies and lost answers ---------------------------------------------------------------------------


class Eager:
    """A Patience that waits for nothing, and counts."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def wait(self, error: Exception) -> None:
        self.errors.append(error)

    def reset(self) -> None: ...


def target(server: PostgresServer, table: str, attempt: int, url: str = "") -> PostgresTarget:
    name, ledger = TableName.of(table), TableName.of("onceflow_ledger")
    settings = PostgresSettings(url or server.url, name, (), ledger, None, True, SCHEMA)
    return PostgresTarget(settings, LedgerOwner(table, "out", "0", "job", attempt))


def batches(*numbers: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array(numbers, pa.int64())})


def test_a_writer_that_hangs_inside_its_commit_is_ended_by_the_next(
    server: PostgresServer, table: str
) -> None:
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


def test_an_older_attempt_that_is_between_two_commits_is_fenced(server: PostgresServer, table: str) -> None:
    older, newer = target(server, table, 1), target(server, table, 2)
    assert older.claim() == 0
    older.commit(1, batches(1))
    assert newer.claim() == 1
    with pytest.raises(Retryable, match="terminating connection"):
        older.commit(2, batches(2))
    with pytest.raises(Fenced):
        older.claim()
    newer.commit(2, batches(3))
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 3]
    newer.close()


def test_one_whose_connection_could_not_be_ended_is_fenced_by_the_ledger(
    server: PostgresServer, table: str
) -> None:
    older = target(server, table, 1)
    assert older.claim() == 0
    with server.connect() as connection:
        newer = Ledger(TableName.of("onceflow_ledger"), LedgerOwner(table, "out", "0", "job", 2))
        assert newer.claim(connection) == 0
    with pytest.raises(Fenced, match="a newer attempt writes the output of sink 'out', subtask 0"):
        older.commit(1, batches(1))
    assert server.rows(f"SELECT n FROM {table}") == []


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
def test_a_commit_without_an_answer_is_decided_by_the_ledger(
    is_done: bool, server: PostgresServer, table: str
) -> None:
    """The connection breaks when COMMIT is sent: before the server gets it, or before it has answered."""
    with CommitProxy(server.port, is_done) as proxy:
        patience = Eager()
        sent = target(server, table, 1, server.url.replace(str(server.port), str(proxy.port)))
        commits = OwnerCommits("out", sent, patience, None)
        commits.commit(1, lambda: batches(1, 2))
        commits.commit(2, lambda: batches(3))
        commits.close()
    assert [type(error) for error in patience.errors] == [Indeterminate]
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2, 3]


def test_a_server_that_is_killed_comes_back_with_all_that_was_committed(table: str) -> None:
    with PostgresServer() as server:
        commits = OwnerCommits("out", target(server, table, 1), Eager(), None)
        commits.commit(1, lambda: batches(1))
        server.kill()
        restarting = threading.Thread(target=server.start)
        restarting.start()
        commits.commit(2, lambda: batches(2))
        restarting.join(WAIT_S)
        assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2]
        commits.close()
