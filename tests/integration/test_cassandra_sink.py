"""CassandraSink on a real Cassandra: the contract, values, keys, bad rows, zombies and lost answers."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.errors import DataLossError, Fatal, Fenced
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import SINK_CHECKS, SinkUnderTest, sinks
from onceflow.sinks.cassandra import CassandraSink
from tests.cassandra_server import KEYSPACE, PASSWORD, USER, CassandraServer
from tests.integration.streaming_query import Query
from tests.integration.test_structured_streaming_sink import forget_last_commit
from tests.upsert_cases import (
    CHANGES_SEEN,
    changes_are_applied,
    checkpoint,
    goes_back,
    keeps_the_contract,
    number,
    open_writer,
    overtaken,
    server_is_killed,
    without_an_answer,
)

pytestmark = pytest.mark.cassandra
ROWS, LEDGER = b"\0\0\0\x08\0\x20\0", b'"checkpoint":'
"""In each request that writes rows (the length and the first bytes of a version), or changes a ledger."""
CHECKS_OF_THE_STORE = (
    sinks.commit_may_be_told_twice,
    sinks.recovery_commits_what_was_promised_once,
    sinks.an_older_attempt_can_not_commit_any_more,
    sinks.another_parallelism_commits_for_the_owners_of_before,
)
"""The others are the staged files' matter, and are checked with other stores, too."""
NUMBERS, CHANGES = "n bigint PRIMARY KEY", "k text PRIMARY KEY, v bigint"


@pytest.fixture(scope="module")
def server() -> Iterator[CassandraServer]:
    with CassandraServer(keeps_tables=False) as server:
        yield server


@pytest.fixture
def table() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def make(server: CassandraServer, table: str, columns: str, more: str = "") -> None:
    server.ask(f"CREATE TABLE {KEYSPACE}.{table} ({columns}) {more}")


def sink_at(port: int, table: str, key: Any = "n", **options: Any) -> CassandraSink:
    given = {"username": USER, "password": PASSWORD, "delivery_timeout": "20 s", **options}
    return CassandraSink("127.0.0.1", KEYSPACE, table, key, port=port, **given)


def rows(server: CassandraServer, table: str) -> list[Any]:
    return server.ask(f"SELECT * FROM {KEYSPACE}.{table}")


def numbers(server: CassandraServer, table: str) -> list[int]:
    return sorted(row.n for row in rows(server, table))


def values(server: CassandraServer, table: str) -> dict[str, Any]:
    return {row.k: row.v for row in rows(server, table)}


# --- The contract ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=[] if check in CHECKS_OF_THE_STORE else [pytest.mark.soak])
        for check in SINK_CHECKS
    ],
    ids=lambda check: check.__name__,
)
def test_the_contract_of_sinks(
    check: Callable[[SinkUnderTest], None], server: CassandraServer, table: str
) -> None:
    make(server, table, NUMBERS)
    sink = sink_at(server.port, table, delivery_timeout="1 s")
    keeps_the_contract(check, sink, table, lambda: numbers(server, table))


# --- Values ---------------------------------------------------------------------------------------------


def test_each_value_is_what_it_was(server: CassandraServer, table: str) -> None:
    make(
        server,
        table,
        """id bigint, who text, at timestamp, price decimal, tags frozen<list<text>>, more map<text, int>,
        none text, day date, time time, raw blob, real float, number varint, ok boolean, code uuid,
        other text, PRIMARY KEY (id, who)""",
    )
    row = {
        "who": 'ünï:"x',
        "id": 2**53 + 1,
        "at": dt.datetime(1965, 2, 28, 12, 0, 0, 123000, dt.UTC),
        "price": Decimal("1.20"),
        "tags": ["a", "a"],
        "more": {"a": 1},
        "none": None,
        "day": dt.date(1969, 12, 31),
        "time": dt.time(1, 2, 3, 456789),
        "raw": b"\0\xff",
        "real": 0.5,
        "number": 2**64 - 1,
        "ok": True,
        "code": "6d5b2a3e-64c0-4b0e-9d6b-0c7b2f1b7a55",
    }
    schema = pa.schema(
        {
            "who": pa.string(),
            "id": pa.int64(),
            "at": pa.timestamp("us", "UTC"),
            "price": pa.decimal128(9, 2),
            "tags": pa.list_(pa.string()),
            "more": pa.map_(pa.string(), pa.int32()),
            "none": pa.string(),
            "day": pa.date32(),
            "time": pa.time64("us"),
            "raw": pa.binary(),
            "real": pa.float32(),
            "number": pa.uint64(),
            "ok": pa.bool_(),
            "code": pa.string(),
        }
    )
    there = "(id, who, none, other) VALUES (9007199254740993, 'ünï:\"x', 'was', 'stays')"
    server.ask(f"INSERT INTO {KEYSPACE}.{table} {there}")
    job = Job("values")
    sink = sink_at(server.port, table, ["who", "id"])
    job.from_records(pa.Table.from_pylist([row], schema=schema)).sink_to(sink)
    job.run(master="threads[1]")
    (found,) = rows(server, table)
    assert {
        **row,
        "at": row["at"].replace(tzinfo=None),  # type: ignore[attr-defined]
        "code": uuid.UUID(str(row["code"])),
        "other": "stays",
    } == {**found._asdict(), "day": found.day.date(), "time": found.time.time(), "more": dict(found.more)}


def test_the_last_row_of_a_key_counts_and_deletes_delete(server: CassandraServer, table: str) -> None:
    make(server, table, CHANGES)
    sink = sink_at(server.port, table, "k")
    assert changes_are_applied(sink, table, lambda: values(server, table)) == CHANGES_SEEN


def test_many_rows_are_under_way_at_once_and_those_of_others_are_replaced(
    server: CassandraServer, table: str
) -> None:
    make(server, table, f"{NUMBERS}, v bigint")
    server.ask(f"INSERT INTO {KEYSPACE}.{table} (n, v) VALUES (1, 0)")
    schema = pa.schema([("n", pa.int64()), ("v", pa.int64())])
    writer = open_writer(sink_at(server.port, table), table, MemoryStore(), schema)
    writer.recover([])
    checkpoint(writer, 1, Records(pa.record_batch({"n": list(range(2_500)), "v": [7] * 2_500})))
    writer.close()
    found = rows(server, table)
    assert sorted(row.n for row in found) == list(range(2_500))
    assert {row.v for row in found} == {7}


# --- Rows and places that are refused --------------------------------------------------------------------

AT = [dt.datetime(2026, 1, 1, 0, 0, 0, us, dt.UTC) for us in (1_000, 0, 0, 0, 1)]
BAD = pa.table({"k": ["good", None, "x" * 65_536, "", "cut"], "at": pa.array(AT, pa.timestamp("us", "UTC"))})


def test_bad_rows_go_to_a_table_of_their_own(server: CassandraServer, table: str) -> None:
    make(server, table, "k text PRIMARY KEY, at timestamp")
    job = Job("bad")
    sink = sink_at(server.port, table, "k", bad_rows_to=f"{table}_bad")
    job.from_records(BAD).sink_to(sink, uid="out")
    job.run(master="threads[1]")
    assert [row.k for row in rows(server, table)] == ["good"]
    found = sorted((row.key[:8], row.reason) for row in rows(server, f"{table}_bad"))
    assert [key for key, _ in found] == ["", "cut", "null (0)", "xxxxxxxx"]
    assert [reason[:22] for _, reason in found] == [
        "Key may not be empty",
        "column 'at': 2026-01-0",
        "its key is null",
        "Key length of 65536 is",
    ]


def test_without_one_a_bad_row_ends_the_job_and_is_named(server: CassandraServer, table: str) -> None:
    make(server, table, "k text PRIMARY KEY, at timestamp")
    writer = open_writer(sink_at(server.port, table, "k"), table, MemoryStore(), BAD.schema)
    writer.recover([])
    sentence = (
        rf"table shop.{table} refuses the row with key cut: column 'at': .* more than the mill.*bad_rows"
    )
    with pytest.raises(Fatal, match=sentence):
        checkpoint(writer, 1, Records(BAD.slice(4).combine_chunks().to_batches()[0]))
    writer.close()


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        (None, {}, "there is no table 't.*' in keyspace 'shop': make it before"),
        (NUMBERS, {"keyspace": "shops"}, "there is no keyspace 'shops'"),
        (NUMBERS, {"password": "wrong"}, "connecting: .*correct the user or the password"),
        (NUMBERS, {"username": None, "password": None}, "connecting: .*correct the user or the password"),
        (
            f"{NUMBERS}) WITH gc_grace_seconds = 599 --",
            {},
            r"table shop.* forgets deletes after 599 s .gc_grace_seconds",
        ),
    ],
)
def test_what_can_never_be_written_ends_the_job_in_a_sentence(
    columns: str | None, options: dict[str, Any], says: str, server: CassandraServer, table: str
) -> None:
    if columns is not None:
        server.ask(f"CREATE TABLE {KEYSPACE}.{table} ({columns}\n{'' if 'WITH' in columns else ')'}")
    given = {"keyspace": KEYSPACE, "username": USER, "password": PASSWORD, **options}
    sink = CassandraSink("127.0.0.1", table=table, key="n", port=server.port, **given)
    writer = open_writer(sink, table, MemoryStore())
    with pytest.raises(Fatal, match=f"^sink 'out': {says}"):
        writer.recover([])
    writer.close()


# --- Encrypted connections -------------------------------------------------------------------------------


def test_connections_are_encrypted_and_the_server_is_known(server: CassandraServer, table: str) -> None:
    make(server, table, NUMBERS)
    sink = sink_at(server.port, table, tls=True, ca_certs=str(server.folder / "ca.pem"))
    writer = open_writer(sink, table, MemoryStore())
    writer.recover([])
    checkpoint(writer, 1, number(1))
    clients = server.ask("SELECT ssl_enabled FROM system_views.clients")
    writer.close()
    assert numbers(server, table) == [1]
    assert any(client.ssl_enabled for client in clients)


def test_a_server_that_is_not_trusted_gets_no_row(server: CassandraServer, table: str) -> None:
    make(server, table, NUMBERS)
    writer = open_writer(sink_at(server.port, table, tls=True), table, MemoryStore())
    with pytest.raises(Fatal, match=r"connecting: .*CERTIFICATE_VERIFY_FAILED.*: correct tls, ca_certs"):
        writer.recover([])
    writer.close()


# --- Zombies, lost answers and rewinds ------------------------------------------------------------------


def test_what_an_overtaken_writer_has_sent_replaces_nothing(server: CassandraServer, table: str) -> None:
    make(server, table, CHANGES)
    ended = overtaken(lambda port: sink_at(port, table, "k"), server.port, table, ROWS)
    assert ended is Fenced
    assert values(server, table) == {"k": 20}


@pytest.mark.soak
def test_after_going_back_what_is_written_from_then_on_wins(server: CassandraServer, table: str) -> None:
    make(server, table, CHANGES)
    goes_back(lambda: sink_at(server.port, table, "k"), table)
    assert values(server, table) == {"k": 21}


@pytest.mark.parametrize(
    ("word", "is_done"),
    [
        pytest.param(ROWS, True, id="rows done"),
        pytest.param(ROWS, False, id="rows not done", marks=pytest.mark.soak),
        pytest.param(LEDGER, True, id="ledger done"),
        pytest.param(LEDGER, False, id="ledger not done", marks=pytest.mark.soak),
    ],
)
def test_a_request_without_an_answer_is_made_again(
    word: bytes, is_done: bool, server: CassandraServer, table: str
) -> None:
    make(server, table, NUMBERS)
    without_an_answer(lambda port: sink_at(port, table), server.port, table, word, 1, is_done)
    assert numbers(server, table) == [1, 2]


@pytest.mark.soak
def test_a_table_that_was_made_anew_ends_the_job(server: CassandraServer, table: str) -> None:
    """Its rows are gone, and the ledger of the old one is not its own."""
    make(server, table, NUMBERS)
    writer = open_writer(sink_at(server.port, table), table, MemoryStore())
    writer.recover([])
    checkpoint(writer, 1, number(1))
    server.ask(f"DROP TABLE {KEYSPACE}.{table}")
    make(server, table, NUMBERS)
    with pytest.raises(DataLossError, match="says nothing, and it was at 1: it was deleted"):
        checkpoint(writer, 2, number(2))
    writer.close()


@pytest.mark.soak
def test_a_server_that_is_killed_comes_back_with_all_that_was_committed(table: str) -> None:
    with CassandraServer() as server:
        make(server, table, NUMBERS)
        sink = sink_at(server.port, table, delivery_timeout="4 min")
        server_is_killed(sink, table, server.kill, server.start)
        assert numbers(server, table) == [1, 2]


# --- Structured Streaming --------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.soak
def test_micro_batches_keep_the_last_row_of_each_key(
    spark: Any, server: CassandraServer, table: str, tmp_path: Path
) -> None:
    make(server, table, "id bigint PRIMARY KEY, name text")
    options = {"hosts": "127.0.0.1", "port": str(server.port), "keyspace": KEYSPACE, "table": table}
    options |= {"key": "id", "username": USER, "password": PASSWORD}
    query = Query(spark, tmp_path, "onceflow-cassandra", **options)
    for batch in range(2):
        query.add(*({"id": n, "name": f"n{batch}"} for n in range(batch, 4)))
        query.run()
        forget_last_commit(query.checkpoint)
        query.run(lambda rows: rows.selectExpr("id + 100 as id", "name"))
    found = {row.id: row.name for row in rows(server, table)}
    assert found == {0: "n0", 1: "n1", 2: "n1", 3: "n1"}
