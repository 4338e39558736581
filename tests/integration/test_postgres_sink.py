"""PostgresSink on a real PostgreSQL: the contract, types, keys, bad rows, zombies and lost answers."""

from __future__ import annotations

import datetime as dt
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
import pytest
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from onceflow import Job
from onceflow.connectors.postgres.ledger import Ledger
from onceflow.connectors.postgres.server_errors import meaning
from onceflow.connectors.postgres.settings import PostgresSettings
from onceflow.connectors.postgres.target import PostgresTarget
from onceflow.connectors.sql_tables.session import BadRowsError
from onceflow.connectors.sql_tables.table import TableName
from onceflow.runtime.errors import JobFailedError, Retryable
from onceflow.sinks.postgres import PostgresSink
from onceflow.testing.kit import SinkKit
from tests.postgres_server import PostgresServer
from tests.sql_cases import SqlSinkCases, SqlTargetCases, owner, write

pytestmark = pytest.mark.postgres
SCHEMA = pa.schema([("n", pa.int64())])


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


class TestKeysAndRefusedRows(SqlSinkCases):
    sink_type = PostgresSink
    quote: ClassVar[str] = '"'


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
        write(PostgresSink(server.url, name, key=key), pa.Table.from_batches([batch]))
        found = server.rows(f"SELECT v FROM {name} ORDER BY n")
        assert list(map(plain, found)) == list(map(plain, values))


def plain(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{"):
        return json.loads(value)
    return str(value) if isinstance(value, uuid.UUID | IPv4Address) else value


@pytest.mark.parametrize("key", [None, "id"])
def test_text_stays_what_it_is_whatever_encoding_somebody_has_set(
    server: PostgresServer, table: str, key: str | None
) -> None:
    """Nor does it matter that the database has none, as one has that was made with the locale C."""
    server.execute(f"CREATE DATABASE {table} ENCODING 'SQL_ASCII' TEMPLATE template0")
    for database in (table, "postgres"):
        url = f"{server.url.replace('/postgres', '/' + database)}?client_encoding=latin1"
        server.execute(f"DROP TABLE IF EXISTS {table}")
        row = {"id": 1, "name": "é", "c": ["é"]}
        write(PostgresSink(url, table, key=key, create_table=True), [row])
        with psycopg.connect(url, client_encoding="utf8") as connection:
            assert connection.execute(f"SELECT name, c FROM {table}".encode()).fetchall() == [("é", ["é"])]


def test_a_table_is_made_from_the_rows(server: PostgresServer, table: str) -> None:
    """It has a primary key, and a type for each column."""
    rows = {"id": 1, "who": "ann", "at": NOON, "price": Decimal("1.20"), "tags": ["a"], "more": {"a": 1}}
    write(PostgresSink(server.url, f"public.{table}", key="id", create_table=True), [rows])
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
    with pytest.raises(JobFailedError, match=f"sink 'out': .*{sentence}"):
        write(PostgresSink(server.url, table, key=key), [row])


def test_a_database_that_can_never_be_written_to_ends_the_job_at_once(server: PostgresServer) -> None:
    with pytest.raises(JobFailedError, match='database "nowhere" does not exist'):
        write(PostgresSink(server.url.replace("/postgres", "/nowhere"), "t"), [{"n": 1}])


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


def test_a_constraint_that_is_checked_at_the_end_is_found_too(server: PostgresServer, table: str) -> None:
    server.execute(f"CREATE TABLE {table} (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    write(PostgresSink(server.url, table, bad_rows_to=f"{table}_bad"), [{"n": n} for n in (1, 2, 1)])
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2]
    assert server.rows(f"SELECT row FROM {table}_bad") == ['{"n": 1}']


# --- Zombies and lost answers ---------------------------------------------------------------------------


class TestTarget(SqlTargetCases):
    commit_word: ClassVar[bytes] = b"COMMIT\0"
    ended: ClassVar[str] = "terminating connection"

    def target(self, url: str, table: str, attempt: int) -> PostgresTarget:
        name, ledger = TableName.of(table), TableName.of("onceflow_ledger")
        settings = PostgresSettings(url, name, (), ledger, None, True, SCHEMA)
        return PostgresTarget(settings, owner(table, attempt))

    def claim_alone(self, server: PostgresServer, table: str, attempt: int) -> int:
        with server.connect() as connection:
            return Ledger(TableName.of("onceflow_ledger"), owner(table, attempt)).claim(connection)


@retry(retry=retry_if_result(lambda is_so: not is_so), stop=stop_after_delay(60), wait=wait_fixed(0.05))
def wait_until(is_so: Callable[[], bool]) -> bool:
    return is_so()


def test_a_transaction_that_a_deadlock_has_ended_is_made_again(server: PostgresServer, table: str) -> None:
    """Somebody else writes the same rows in the other order, and never gives way."""
    server.execute(f"CREATE TABLE {table} (n int PRIMARY KEY, who text)")
    server.execute(f"INSERT INTO {table} VALUES (1, 'before'), (2, 'before')")
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = server.rows(deadlocks)[0]
    with psycopg.connect(server.url) as other:
        other.execute("SET deadlock_timeout = '1 h'")
        update = f"UPDATE {table} SET who = 'other' WHERE n = %s".encode()
        other.execute(update, [2])
        sink = PostgresSink(server.url, table, key="n")
        writing = threading.Thread(target=write, args=(sink, [{"n": n, "who": "job"} for n in (2, 1)]))
        writing.start()
        blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: server.rows(blocked) != [0])
        other.execute(update, [1])
        other.commit()
    writing.join(60)
    assert server.rows(f"SELECT n, who FROM {table} ORDER BY n") == [(1, "job"), (2, "job")]
    wait_until(lambda: server.rows(deadlocks)[0] > before)


def test_who_creates_a_table_at_the_same_time_as_another_may_try_again(server: PostgresServer) -> None:
    """IF NOT EXISTS rules out neither the table, nor its type, nor their rows in the catalogue. A user's own
    constraint is none of those, whatever its name."""
    meant = set()
    for number in range(20):
        together = threading.Barrier(4)

        def create(together: threading.Barrier = together, name: str = f"at_once_{number}") -> None:
            with psycopg.connect(server.url, autocommit=True) as connection:
                together.wait(60)
                try:
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {name} (n int)")
                except psycopg.Error as error:
                    meant.add(type(meaning(error, "creating")))

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert meant == {Retryable}
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE at_once (n int CONSTRAINT pg_mine UNIQUE)")
        connection.execute("INSERT INTO at_once VALUES (1)")
        with pytest.raises(psycopg.errors.UniqueViolation) as raised:
            connection.execute("INSERT INTO at_once VALUES (1)")
    assert isinstance(meaning(raised.value, "writing"), BadRowsError)
