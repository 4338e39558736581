"""MySqlSink on a real MariaDB: the contract, types, keys, bad rows, zombies and lost answers."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pymysql
import pytest

from onceflow.connectors.mysql.catalog import rows_of
from onceflow.connectors.mysql.server_url import connection_arguments
from onceflow.connectors.mysql.session import MySqlDialect
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.session import BadRowsError
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import JobFailedError
from onceflow.runtime.records import Records, RowKind
from onceflow.sinks.mysql import MySqlSink
from onceflow.testing.kit import SinkKit
from tests.mysql_server import WHY_NOT, MySqlServer, appending_settings
from tests.sql_cases import SqlSinkCases, write

pytestmark = [pytest.mark.mysql, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        yield server


@pytest.fixture
def table() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


# --- The contract ---------------------------------------------------------------------------------------


class TestAppending(SinkKit):
    key: ClassVar[str | None] = None

    @pytest.fixture(autouse=True)
    def _server(self, server: MySqlServer) -> None:
        self.settings["port"] = server.port

    @property
    def url(self) -> str:
        return f"mysql://onceflow@127.0.0.1:{self.settings['port']}/shop"

    def prepare(self) -> None:
        self.settings["table"] = f"t{uuid.uuid4().hex[:10]}"

    def sink(self) -> MySqlSink:
        table = str(self.settings["table"])
        return MySqlSink(self.url, table, key=self.key, create_table=True, delivery_timeout="1 s")

    def visible(self) -> list[int]:
        server = connection_arguments(self.url)
        with suppress(pymysql.ProgrammingError), pymysql.connect(**server) as connection:
            return [n for (n,) in rows_of(connection, f"SELECT n FROM {self.settings['table']}")]
        return []


class TestByKey(TestAppending):
    key = "n"


class TestKeysAndRefusedRows(SqlSinkCases):
    sink_type = MySqlSink
    quote: ClassVar[str] = "`"


# --- Values ---------------------------------------------------------------------------------------------

NOON = dt.datetime(2026, 2, 28, 12, 0, 0, 123456)
VALUES: list[tuple[str, pa.DataType, list[Any]]] = [
    ("boolean", pa.bool_(), [True, False]),
    ("tinyint", pa.int64(), [-128, 127]),
    ("tinyint unsigned", pa.int64(), [0, 255]),
    ("int", pa.int64(), [-(2**31), 7]),
    ("bigint", pa.int32(), [-(2**31), 7]),
    ("bigint unsigned", pa.uint64(), [0, 2**64 - 1]),
    ("decimal(20)", pa.uint64(), [0, 2**64 - 1]),
    ("decimal(10,2)", pa.decimal128(12, 4), [Decimal("1.5000"), Decimal("-2.25")]),
    ("decimal(30,20)", pa.decimal128(30, 20), [Decimal("0.00000000123456789012"), Decimal("-1.5")]),
    ("decimal(65,2)", pa.decimal256(65, 2), [Decimal("9" * 63 + ".25"), Decimal("0.01")]),
    ("float", pa.float32(), [0.5, -1.25]),
    ("double", pa.float64(), [0.1, 1e300, 5e-324, 123456789012345680000.0]),
    ("longtext", pa.string(), ["", "ünï", "a\tb\n\\N'\"", "😀", "nul\0 in it", "space "]),
    ("varchar(5)", pa.large_string(), ["abc", "äöü  "]),
    ("varbinary(9)", pa.binary(), [b"", b"\x00\xff'"]),
    ("binary(2)", pa.binary(2), [b"\x00\xff"]),
    ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 2, 28)]),
    ("datetime(6)", pa.timestamp("ns"), [NOON]),
    ("datetime(3)", pa.timestamp("us"), [NOON.replace(microsecond=120000)]),
    ("json", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x", "y'"]}]),
    ("json", pa.string(), ['{"a": [1, 2]}']),
    ("enum('glad','so so')", pa.string(), ["glad", "so so"]),
    ("inet6", pa.string(), ["2001:db8::1"]),
]


@pytest.mark.parametrize("key", [None, "n"], ids=["appended", "by key"])
def test_values_arrive_as_they_are(key: str | None, server: MySqlServer, table: str) -> None:
    """Null too. The server's own mode would cut what does not fit."""
    declared = ", ".join(f"v{place} {of} NULL" for place, (of, _, _) in enumerate(VALUES))
    server.execute(f"CREATE TABLE {table} (n bigint PRIMARY KEY, {declared})")
    count = max(len(values) for _, _, values in VALUES) + 1
    columns = {"n": pa.array(range(count), pa.int64())}
    for place, (_, arrow, values) in enumerate(VALUES):
        columns[f"v{place}"] = pa.array([*values, *[None] * (count - len(values))], arrow)
    write(MySqlSink(server.url, table, key=key), pa.table(columns))
    for place, (of, _, values) in enumerate(VALUES):
        found = server.rows(f"SELECT v{place} FROM {table} ORDER BY n")
        expected = [*values, *[None] * (count - len(values))]
        assert list(map(plain, found)) == list(map(plain, expected)), of


def plain(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


def test_times_with_a_zone_are_moments_and_times_of_day_keep_microseconds(
    server: MySqlServer, table: str
) -> None:
    server.execute(f"CREATE TABLE {table} (at timestamp(6) NULL, clock time(6))")
    berlin = pa.array([dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)], pa.timestamp("ms", "Europe/Berlin"))
    clock = pa.array([dt.time(23, 59, 59, 999999)], pa.time64("us"))
    write(MySqlSink(server.url, table), pa.table({"at": berlin, "clock": clock}))
    query = f"SELECT unix_timestamp(at), cast(clock AS char) FROM {table}"
    assert server.rows(query) == [(Decimal(1782907200), "23:59:59.999999")]


def test_a_table_is_made_from_the_rows(server: MySqlServer, table: str) -> None:
    rows = {"id": "a", "who": "ann", "at": NOON, "price": Decimal("1.20"), "tags": ["a"], "data": b"x"}
    sink = MySqlSink(server.url, f"shop.{table}", key="id", create_table=True)
    write(sink, [rows])
    assert server.rows(f"SELECT id, who, at, price, tags, data FROM {table}") == [
        ("a", "ann", NOON, Decimal("1.20"), '["a"]', b"x")
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
        ("(n int)", "n", {"n": 1}, r"no unique index on just that: ALTER TABLE t\w+ ADD UNIQUE INDEX \(n\)"),
        ("(n int AS (1), m int)", None, {"n": 1}, "column 'n' of table .* is generated"),
        (
            "(n int PRIMARY KEY, m int UNIQUE)",
            "n",
            {"n": 1, "m": 1},
            "has another unique index, m: a row that",
        ),
        ("(n varchar(9) PRIMARY KEY) CHARSET=utf8mb4", "n", {"n": "a"}, r"are the same \(as A and a\): give"),
        (
            "(n timestamp NULL)",
            None,
            {"n": NOON},
            "no zone would be read as another one; make the column dat",
        ),
        ("(n float)", None, {"n": 0.1}, "digits would be lost; make the column double"),
        (
            "(n int)",
            None,
            {"n": "x"},
            r"is string in the rows and int\(11\) in the table, which does not fit",
        ),
        (
            "(n text)",
            None,
            {"n": 1},
            r"is int64 in the rows and text .*make the column bigint, or cast in the",
        ),
        (
            "(n int) ENGINE=MyISAM",
            None,
            {"n": 1},
            "has the engine MyISAM, which has no transactions, so rows",
        ),
    ],
)
def test_what_does_not_fit_ends_in_a_sentence(
    ddl: str, key: str | None, row: dict[str, Any], sentence: str, server: MySqlServer, table: str
) -> None:
    if ddl:
        server.execute(f"CREATE TABLE {table} {ddl}")
    with pytest.raises(JobFailedError, match=f"sink 'out': .*{sentence}"):
        write(MySqlSink(server.url, table, key=key), [row])


def test_a_view_is_refused(server: MySqlServer, table: str) -> None:
    server.execute(f"CREATE TABLE {table} (n int)", f"CREATE VIEW {table}_seen AS SELECT * FROM {table}")
    with pytest.raises(JobFailedError, match="_seen is a view, and what is below it may have no"):
        write(MySqlSink(server.url, f"{table}_seen"), [{"n": 1}])


def test_a_database_that_can_never_be_written_to_ends_the_job_at_once(server: MySqlServer) -> None:
    with pytest.raises(JobFailedError, match=r"(Access denied for user|Unknown database)"):
        write(MySqlSink(server.url.replace("/shop", "/nowhere"), "t"), [{"n": 1}])


def test_a_checkpoint_whose_rows_trickled_in_takes_few_statements(server: MySqlServer, table: str) -> None:
    """One for each batch would take longer than the stream needs to bring the next ones."""
    sink = MySqlSink(server.url, table, create_table=True)
    files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
    writer = sink.open_writer(SinkContext("job", table, "out", 0, 1, 1, 0, files, SystemClock(), SCHEMA))
    writer.recover([])
    for n in range(500):
        writer.write(Records(pa.record_batch([pa.array([n], pa.int64())], schema=SCHEMA)))
    writer.pre_commit(1).stage()
    inserts = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'com_insert'"
    (before,) = server.rows(inserts)
    writer.commit(1)
    (after,) = server.rows(inserts)
    writer.close()
    assert int(after) - int(before) == 1
    assert server.rows(f"SELECT n FROM {table} ORDER BY n") == list(range(500))


# --- By key ---------------------------------------------------------------------------------------------


def test_a_row_is_found_by_a_key_of_another_index_that_numbers_itself(
    server: MySqlServer, table: str
) -> None:
    """An AUTO_INCREMENT that the rows do not have can't collide."""
    server.execute(f"CREATE TABLE {table} (id int AUTO_INCREMENT PRIMARY KEY, n int UNIQUE NOT NULL, v int)")
    write(MySqlSink(server.url, table, key="n"), [{"n": 1, "v": 1}, {"n": 2, "v": 2}], uid="a")
    write(MySqlSink(server.url, table, key="n"), [{"n": 2, "v": 3}], uid="b")
    assert server.rows(f"SELECT n, v FROM {table} ORDER BY id") == [(1, 1), (2, 3)]


def test_deletes_of_many_rows_take_many_statements(server: MySqlServer, table: str) -> None:
    """More than one of 1,000 conditions, of decimals, whose keys are compared as decimals."""
    count, of = 2_500, pa.decimal128(20, 10)
    schema = pa.schema([("k", of)])
    sink = MySqlSink(server.url, table, key="k", create_table=True)
    files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
    writer = sink.open_writer(SinkContext("job", table, "out", 0, 1, 1, 0, files, SystemClock(), schema))
    writer.recover([])
    keys = pa.array([Decimal(n) / 10**10 for n in range(count)], of)
    for n, (kind, some) in enumerate([(RowKind.INSERT, keys), (RowKind.DELETE, keys[1:])], 1):
        batch = pa.record_batch([some], schema=schema)
        writer.write(Records(batch, kind=np.full(len(some), kind, np.int8)))
        writer.pre_commit(n).stage()
        writer.commit(n)
    writer.close()
    assert server.rows(f"SELECT k FROM {table}") == [Decimal(0)]


# --- Rows that are refused ------------------------------------------------------------------------------


def test_bad_rows_go_to_a_table_of_their_own_once(server: MySqlServer, table: str) -> None:
    """Named by constraint, or by column; all others are written. The server's own mode would cut or round
    most of these in silence."""
    parent = f"{table}_parent"
    server.execute(
        f"CREATE TABLE {parent} (id int PRIMARY KEY)",
        f"INSERT INTO {parent} VALUES (1)",
        f"CREATE TABLE {table} (n smallint, who varchar(3), at datetime(3), price decimal(6,2), mood"
        f" enum('1x','glad'), p int, u int UNIQUE, m int NOT NULL, c char(4),"
        f" CONSTRAINT small CHECK (n < 900), CONSTRAINT has_parent FOREIGN KEY (p) REFERENCES {parent} (id))",
    )
    good = {"n": 1, "who": "abc", "at": NOON.replace(microsecond=0), "price": Decimal("1.5000")}
    good |= {"mood": "glad", "p": 1, "u": None, "m": 0, "c": "a"}
    bad: list[tuple[dict[str, Any], str, str]] = [
        ({"n": 40_000}, "n", "1264"),
        ({"n": 900}, "small", "4025"),
        ({"who": "abcd"}, "who", "1406"),
        ({"who": "abc "}, "who", ""),
        ({"at": NOON}, "at", ""),
        ({"price": Decimal("1.2345")}, "price", ""),
        ({"price": Decimal("12345.0000")}, "price", "1264"),
        ({"mood": "1"}, "mood", ""),
        ({"p": 2}, "has_parent", "1452"),
        ({"u": 0}, "u", "1062"),
        ({"m": None}, "m", ""),
        ({"c": "a "}, "c", ""),
    ]
    rows = [{**good, "u": n} for n in range(200)]
    rows += [{**good, "u": 1_000 + n, **changes} for n, (changes, _, _) in enumerate(bad)]
    write(MySqlSink(server.url, table, bad_rows_to=f"{table}_bad"), rows)
    assert server.rows(f"SELECT * FROM {table} WHERE u >= 1000") == []
    assert server.rows(f"SELECT count(*) FROM {table}") == [200]
    found = server.rows(f"SELECT `constraint`, coalesce(code, '') FROM {table}_bad")
    assert found == [(constraint, code) for _, constraint, code in bad]


def test_a_trigger_may_refuse_rows(server: MySqlServer, table: str) -> None:
    server.execute(
        f"CREATE TABLE {table} (n int)",
        f"CREATE TRIGGER {table}_t BEFORE INSERT ON {table} FOR EACH ROW "
        "IF NEW.n = 2 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'two is not liked'; END IF",
    )
    write(MySqlSink(server.url, table, bad_rows_to=f"{table}_bad"), [{"n": n} for n in range(4)])
    assert server.rows(f"SELECT n FROM {table}") == [0, 1, 3]
    assert server.rows(f"SELECT reason, `row` FROM {table}_bad") == [("two is not liked", '{"n": 2}')]


def test_a_value_that_the_server_changes_is_a_bad_row_even_if_it_only_says_so(
    server: MySqlServer, table: str
) -> None:
    """Casts before it let none through that is known: this is what remains if the server changes another."""
    server.execute(f"CREATE TABLE {table} (n decimal(6,2))")
    session = MySqlDialect(
        appending_settings(server.url, table, SCHEMA), LedgerOwner(table, "out", "0", "job", 1)
    ).connect()
    session.execute(f"INSERT INTO {table} VALUES (1.25)")
    with pytest.raises(BadRowsError, match="truncated for column 'n'"):
        session.execute(f"INSERT INTO {table} VALUES (1.239)")
    session.close()
