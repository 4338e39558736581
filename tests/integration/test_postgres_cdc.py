"""PostgresCdcSource on a real PostgreSQL: the contract, the table while it is written, types and the slot."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.connectors.postgres_cdc.settings import lsn_of
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import ReaderContext, SplitState
from onceflow.runtime.errors import BadRecordError, DataLossError, Unavailable
from onceflow.runtime.records import RowKind
from onceflow.sinks.print import PrintSink
from onceflow.testing.kit import SourceKit
from tests import cdc_tables
from tests.cdc_tables import (
    MANY_SLOTS,
    SCHEMA,
    WAIT_S,
    Table,
    apply,
    ends_with,
    first_splits,
    is_long,
    never,
    open_reader,
    read,
    through_json,
    values,
)
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(MANY_SLOTS) as server:
        yield server


@pytest.fixture
def make_table(server: PostgresServer) -> Callable[..., cdc_tables.Table]:
    return partial(cdc_tables.make_table, server)


# --- The contract ---------------------------------------------------------------------------------------


class TestTableThenLog(SourceKit):
    key: ClassVar[str] = "n bigint"
    schema: ClassVar[pa.Schema] = pa.schema([("n", pa.int64())])
    start: ClassVar[str] = "table"

    @pytest.fixture(autouse=True)
    def _server(self, server: PostgresServer) -> None:
        self.settings["url"] = server.url
        self.server = server

    def prepare(self) -> None:
        name = self.settings["name"] = f"t{uuid.uuid4().hex[:10]}"
        self.server.execute(
            f"CREATE TABLE {name} ({self.key}, PRIMARY KEY (n))",
            f"ALTER TABLE {name} REPLICA IDENTITY FULL",
            f"CREATE PUBLICATION {name} FOR TABLE {name}",
            f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')",
            f"INSERT INTO {name} SELECT n FROM generate_series(1, 18) n",
            f"DELETE FROM {name} WHERE n = '18'",
        )

    def source(self) -> Any:
        name: Any = self.settings["name"]
        return PostgresCdcSource(
            url=str(self.settings["url"]), table=name, of=self.schema, slot=name, publication=name,
            start=self.start, bounded=True,  # type: ignore[arg-type]
        )  # fmt: skip


class TestLogOnly(TestTableThenLog):
    start = "slot"


# --- What is read ---------------------------------------------------------------------------------------


def test_a_table_and_then_each_change_with_what_it_does(make_table: Any) -> None:
    table = make_table()
    table.server.execute(f"INSERT INTO {table.name} VALUES (2, 'b'), (1, 'a')")
    source = table.source(commit_time_column="at", lsn_column="lsn")
    with closing(open_reader(source, first_splits(source))) as reader:
        rows = read(reader, is_long(2))
        assert [tuple(row.values()) for _, row in rows] == [(1, "a", None, None), (2, "b", None, None)]
        table.server.execute(
            f"INSERT INTO {table.name} VALUES (3, NULL)",
            f"UPDATE {table.name} SET name = 'c' WHERE id = 3",
            f"UPDATE {table.name} SET id = 4 WHERE id = 3",
            f"DELETE FROM {table.name} WHERE id = 1",
        )
        rows = read(reader, is_long(6))
    assert [(kind.name, row["id"], row["name"]) for kind, row in rows] == [
        ("INSERT", 3, None),
        ("UPDATE_BEFORE", 3, None),
        ("UPDATE_AFTER", 3, "c"),
        ("DELETE", 3, "c"),
        ("INSERT", 4, "c"),
        ("DELETE", 1, "a"),
    ]
    assert all(abs(row["at"] - datetime.now(UTC)).total_seconds() < 600 for _, row in rows)
    assert [row["lsn"] for _, row in rows] == sorted(row["lsn"] for _, row in rows)


def test_a_position_of_a_savepoint_gets_the_end_that_the_run_is_given(make_table: Any) -> None:
    table = make_table()
    table.server.execute(f"INSERT INTO {table.name} VALUES (1, 'a')")
    source = table.source()
    with closing(open_reader(source, first_splits(source))) as reader:
        read(reader, is_long(1))
        table.server.execute(f"INSERT INTO {table.name} VALUES (2, 'b')")
        read(reader, is_long(1))
        saved = reader.snapshot()
    table.server.execute(f"INSERT INTO {table.name} VALUES (3, 'c')")
    ended = source.ended("latest")
    assert ended.is_bounded
    enumerator = ended.open_enumerator("job", SystemClock())
    splits = enumerator.bounded(saved, None)
    assert source.open_enumerator("job", SystemClock()).bounded(saved, None) == saved, "it has no end"
    table.server.execute(f"INSERT INTO {table.name} VALUES (4, 'd')")
    assert enumerator.bounded(splits, None) == splits, "those that have an end keep it"
    seen: list[Any] = []
    with closing(open_reader(ended, splits)) as reader:
        while (fetch := reader.poll(100, 100)) is None or not fetch.finished:
            seen += [] if fetch is None else fetch.records.to_pylist()
        seen += fetch.records.to_pylist()
    assert [each["id"] for each in seen] == [3]


class Writer:
    """Changes rows of a table at random, until it is closed: also the keys, in transactions of several
    rows."""

    def __init__(self, table: Table, rows: int) -> None:
        self._table, self._rows, self._over = table, rows, threading.Event()
        self._random = random.Random(1)
        self.transactions = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pick, name = self._random.randrange, self._table.name
        with self._table.server.connect() as connection:
            connection.autocommit = False
            while not self._over.is_set():
                for _ in range(pick(1, 6)):
                    key, other = pick(self._rows), pick(self._rows)
                    text = f"v{self.transactions}"
                    statement = (
                        f"INSERT INTO {name} VALUES ('{key}', '{text}') ON CONFLICT DO NOTHING",
                        f"UPDATE {name} SET name = '{text}' WHERE id = '{key}'",
                        f"UPDATE {name} SET id = '{other}' WHERE id = '{key}' "
                        f"AND NOT EXISTS (SELECT FROM {name} WHERE id = '{other}')",
                        f"DELETE FROM {name} WHERE id = '{key}'",
                    )[pick(4)]
                    connection.execute(statement.encode())
                connection.rollback() if pick(8) == 0 else connection.commit()
                self.transactions += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize("key", ["bigint", "text"])
def test_a_table_that_is_written_while_it_is_read_and_readers_that_die_give_it_exactly(
    key: str, make_table: Any
) -> None:
    """Every row that comes has to fit what came before: nothing twice, nothing left out, nothing too
    early."""
    rows = 600
    table = make_table(f"id {key} PRIMARY KEY, name text")
    table.server.execute(f"INSERT INTO {table.name} SELECT n, 'first' FROM generate_series(1, {rows}, 2) n")
    of = pa.int64() if key == "bigint" else pa.string()
    source = table.source(of=pa.schema([("id", of), ("name", pa.string())]))
    chance, state = random.Random(2), dict[Any, Any]()
    splits, parts = first_splits(source), set[tuple[bool, int]]()
    writer = Writer(table, rows)
    for _ in range(100):
        if len(parts) > 8 and (False, 0) in parts:
            break
        with closing(open_reader(source, splits)) as reader:
            apply(state, read(reader, is_long(chance.randrange(1, 90)), chance.randrange(1, 40)))
            splits = [through_json(split) for split in reader.snapshot()]
            parts.add((splits[0].position["is_reading_table"], len(splits[0].position["ranges"])))
    writer.close()
    assert writer.transactions > 20
    assert {(True, 1), (True, 4), (False, 0)} <= parts, "read in parts, and then past all of them"
    there = dict(table.server.rows(f"SELECT id, name FROM {table.name}"))
    with closing(open_reader(source, splits)) as reader:
        apply(state, read(reader, lambda seen: state_after(state, seen) == there, 100))


def state_after(state: dict[Any, Any], seen: Sequence[tuple[RowKind, Any]]) -> dict[Any, Any]:
    after = dict(state)
    apply(after, seen)
    return after


# --- Types ----------------------------------------------------------------------------------------------

TYPES = {
    "small": ("smallint", pa.int64(), "7", 7),
    "real": ("double precision", pa.float64(), "0.1", 0.1),
    "exact": ("numeric(10,2)", pa.decimal128(10, 2), "1.50", Decimal("1.50")),
    "yes": ("boolean", pa.bool_(), "true", True),
    "raw": ("bytea", pa.binary(), "'\\x00ff'", b"\x00\xff"),
    "day": ("date", pa.date32(), "'2026-01-31'", date(2026, 1, 31)),
    "at": ("timestamptz", pa.timestamp("us", "UTC"), "'2026-01-31 10:00:00.5+02'", datetime(2026, 1, 31, 8, 0,
    0, 500_000, UTC)), "plain": ("timestamp", pa.timestamp("us"), "'2026-01-31 10:00'", datetime(2026, 1, 31,
    10)), "mark": ("uuid", pa.string(), "'{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}'",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), "doc": ("jsonb", pa.string(), "'{\"a\": [1]}'", '{"a": [1]}'),
    "list": ("int[]", pa.string(), "'{1,NULL}'", "{1,NULL}"),
    "text": ("text", pa.string(), "E'a\\n\"b\" ä'", 'a\n"b" ä'),
}  # fmt: skip


def test_values_are_the_same_from_the_table_and_from_the_log(make_table: Any) -> None:
    columns = ", ".join(f"{name} {declared}" for name, (declared, *_) in TYPES.items())
    table = make_table(f"id int PRIMARY KEY, {columns}")
    given = ", ".join(given for _, _, given, _ in TYPES.values())
    nulls = ", ".join("NULL" for _ in TYPES)
    source = table.source(of=pa.schema([("id", pa.int32()), *((n, of) for n, (_, of, *_) in TYPES.items())]))
    table.server.execute(f"INSERT INTO {table.name} VALUES (1, {given}), (2, {nulls})")
    with closing(open_reader(source, first_splits(source))) as reader:
        rows = read(reader, is_long(2))
        table.server.execute(f"INSERT INTO {table.name} VALUES (3, {given}), (4, {nulls})")
        rows += read(reader, is_long(2))
    wanted, no_values = tuple(value for *_, value in TYPES.values()), (None,) * len(TYPES)
    assert [row for _, row in values(rows)] == [(1, *wanted), (2, *no_values), (3, *wanted), (4, *no_values)]


def test_a_large_value_that_an_update_leaves_is_still_there(make_table: Any) -> None:
    table = make_table("id int PRIMARY KEY, n int, large text")
    table.server.execute(f"ALTER TABLE {table.name} ALTER large SET STORAGE EXTERNAL")
    source = table.source(of=pa.schema([("n", pa.int32()), ("large", pa.string())]), start="slot")
    splits = first_splits(source)
    table.server.execute(
        f"INSERT INTO {table.name} VALUES (1, 1, repeat('x', 10000))", f"UPDATE {table.name} SET n = 2"
    )
    with closing(open_reader(source, splits)) as reader:
        assert [row for _, row in values(read(reader, is_long(3)))][-1] == (2, "x" * 10_000)


def test_without_rows_before_an_update_is_its_new_row_and_a_delete_its_key(make_table: Any) -> None:
    table = make_table(identity="DEFAULT")
    source = table.source(before="optional")
    splits = first_splits(source)
    table.server.execute(
        f"INSERT INTO {table.name} VALUES (1, 'a')",
        f"UPDATE {table.name} SET name = 'b'",
        f"UPDATE {table.name} SET id = 2",
        f"DELETE FROM {table.name}",
    )
    with closing(open_reader(table.source(before="optional", start="slot"), no_table(splits))) as reader:
        assert values(read(reader, is_long(5))) == [
            ("INSERT", (1, "a")),
            ("UPDATE_AFTER", (1, "b")),
            ("DELETE", (1, None)),
            ("INSERT", (2, "b")),
            ("DELETE", (2, None)),
        ]


def no_table(splits: Sequence[SplitState]) -> list[SplitState]:
    return [SplitState(split.split_id, {**split.position, "is_reading_table": False}) for split in splits]


def test_a_row_that_does_not_fit_ends_the_job_or_goes_to_the_dead_letters(make_table: Any) -> None:
    table = make_table("id int PRIMARY KEY, at timestamptz")
    of = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
    table.server.execute(f"INSERT INTO {table.name} VALUES (1, 'infinity'), (2, '2026-01-01')")
    source = table.source(of=of)
    ends_with(BadRecordError, "the key 1 ", source, first_splits(source))
    tolerant = table.source(of=of, dead_letters=PrintSink())
    with closing(open_reader(tolerant, first_splits(tolerant))) as reader:
        fetch = poll_some(reader)
    assert fetch.records.column("id").to_pylist() == [2]
    (letter,) = fetch.dead_letters.to_pylist()
    assert letter["topic"] == f"public.{table.name}"
    assert json.loads(letter["value"]) == {"id": "1", "at": "infinity"}


def poll_some(reader: Any) -> Any:
    deadline = time.monotonic() + WAIT_S
    while (fetch := reader.poll(0, 100)) is None:
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)
    return fetch


# --- The slot -------------------------------------------------------------------------------------------


def confirmed(table: Table) -> int:
    (lsn,) = table.server.rows(
        f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{table.name}'"
    )
    return lsn_of(lsn)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_the_slot_moves_on_when_a_checkpoint_is_complete_and_not_before(make_table: Any) -> None:
    table = make_table()
    source = table.source(start="slot")
    splits = first_splits(source)
    begin = confirmed(table)
    with closing(open_reader(source, splits)) as reader:
        table.server.execute(f"INSERT INTO {table.name} VALUES (1, 'a')")
        read(reader, is_long(1))
        reader.on_barrier(1)
        (first,) = reader.snapshot()
        table.server.execute(f"INSERT INTO {table.name} VALUES (2, 'b')")
        read(reader, is_long(1))
        reader.on_barrier(2)
    assert confirmed(table) == begin, "no checkpoint was complete"
    with closing(open_reader(source, [first])) as reader:
        assert values(read(reader, is_long(1))) == [("INSERT", (2, "b"))]
        reader.on_barrier(3)
        (second,) = reader.snapshot()
        reader.on_completed(3)
        wait_for(lambda: confirmed(table) == second.position["lsn"])
    source.open_enumerator("job", SystemClock()).check_restored([second])
    if second.position["lsn"] > first.position["lsn"]:
        with pytest.raises(DataLossError, match=r"changes of table .* in between are gone"):
            source.open_enumerator("job", SystemClock()).check_restored([first])


def test_a_slot_that_stands_behind_an_idle_table_moves_with_the_log_of_others(make_table: Any) -> None:
    table, other = make_table(), make_table()
    source = table.source(start="slot")
    with closing(open_reader(source, first_splits(source))) as reader:
        begin = confirmed(table)
        other.server.execute(f"INSERT INTO {other.name} VALUES (1, 'a')")
        number = 0

        def has_moved() -> bool:
            nonlocal number
            number += 1
            reader.poll(0, 10)
            reader.on_barrier(number)
            reader.on_completed(number)
            return confirmed(table) > begin

        wait_for(has_moved)


def test_a_server_that_is_killed_goes_on_where_it_was() -> None:
    with PostgresServer({"wal_sender_timeout": "2 s"}) as server:
        server.execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, name text)",
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "CREATE PUBLICATION p FOR TABLE t",
        )
        source = PostgresCdcSource(
            url=server.url, table="t", of=SCHEMA, slot="s", publication="p", start="slot", timeout="50 s"
        )
        with closing(open_reader(source, first_splits(source))) as reader:
            server.execute("INSERT INTO t VALUES (1, 'a')")
            assert values(read(reader, is_long(1))) == [("INSERT", (1, "a"))]
            server.kill()
            assert reader.poll(0, 10) is None
            server.start()
            server.execute("INSERT INTO t VALUES (2, 'b')")
            assert values(read(reader, is_long(1))) == [("INSERT", (2, "b"))]


def test_an_older_attempt_that_has_the_slot_loses_it_and_another_job_keeps_it(make_table: Any) -> None:
    table = make_table()
    source = table.source(start="slot", timeout="100 ms")
    splits = first_splits(source)
    with closing(open_reader(source, splits)) as older:
        table.server.execute(f"INSERT INTO {table.name} VALUES (1, 'a')")
        assert read(older, is_long(1))
        with closing(open_reader(source, splits)) as newer:
            assert values(read(newer, is_long(1))) == [("INSERT", (1, "a"))]
            stranger = source.open_reader(ReaderContext("another", "uid", 0, 1, SystemClock()))
            stranger.add_splits(splits)
            with closing(stranger), pytest.raises(Unavailable, match="is in use by another"):
                read(stranger, never)
            table.server.execute(f"INSERT INTO {table.name} VALUES (2, 'b')")
            assert values(read(newer, is_long(1))) == [("INSERT", (2, "b"))]


def test_a_slot_that_has_lost_its_log_is_data_loss() -> None:
    sizes = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with PostgresServer(sizes) as server:
        server.execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, name text)",
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "CREATE PUBLICATION p FOR TABLE t",
        )
        source = PostgresCdcSource(
            url=server.url, table="t", of=SCHEMA, slot="s", publication="p", start="slot"
        )
        splits = first_splits(source)
        for _ in range(4):
            server.execute(
                "SELECT pg_switch_wal()", "INSERT INTO t VALUES (1)", "DELETE FROM t", "CHECKPOINT"
            )
        assert server.rows("SELECT wal_status FROM pg_replication_slots") == ["lost"]
        with pytest.raises(DataLossError, match="has lost its log"):
            source.open_enumerator("job", SystemClock()).check_restored(splits)
        ends_with(DataLossError, "has lost its log", source, splits)
        server.execute("SELECT pg_drop_replication_slot('s')")
        with pytest.raises(DataLossError, match="is gone"):
            source.open_enumerator("job", SystemClock()).check_restored(splits)
