"""RedisSink on a real Redis: the contract, values, keys, bad rows, zombies and lost answers."""

from __future__ import annotations

import datetime as dt
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SinkContext, SinkWriter
from onceflow.runtime.errors import DataLossError, Fenced, JobFailedError
from onceflow.runtime.records import Records, RowKind
from onceflow.runtime.testing.conformance import SINK_CHECKS, SinkUnderTest
from onceflow.sinks.redis import RedisSink
from tests.answer_proxy import AnswerProxy
from tests.redis_server import RedisServer

pytestmark = pytest.mark.redis
SCHEMA = pa.schema([("n", pa.int64())])
WAIT_S = 240


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return f"p{uuid.uuid4().hex[:10]}"


def open_writer(
    sink: RedisSink, lineage: str, store: MemoryStore, schema: pa.Schema = SCHEMA, attempt: int = 1
) -> SinkWriter:
    files = AttemptStagedFiles(store, attempt, "out", 0)
    return sink.open_writer(
        SinkContext("job", lineage, "out", 0, 1, attempt, 0, files, SystemClock(), schema)
    )


# --- The contract ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["hash", "json"])
@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_sinks(
    check: Callable[[SinkUnderTest], None], form: Any, server: RedisServer, prefix: str
) -> None:
    store = MemoryStore()
    sink = RedisSink(server.url, prefix, "n", form=form, delivery_timeout="1 s")

    def opened(subtask: int, parallelism: int, attempt: int, restored: int) -> SinkWriter:
        files = AttemptStagedFiles(store, attempt, "out", subtask)
        where = ("job", prefix, "out", subtask, parallelism, attempt, restored)
        return sink.open_writer(SinkContext(*where, files, SystemClock(), SCHEMA))

    def records(n: int) -> Records:
        return Records(pa.record_batch({"n": [n]}))

    check(SinkUnderTest(opened, records, lambda: sorted(int(key) for key in server.keys(prefix))))


# --- Values ---------------------------------------------------------------------------------------------

NOON = dt.datetime(2026, 2, 28, 12, 0, 0, 123456, dt.UTC)


def test_a_row_is_a_hash_or_a_json_text(server: RedisServer, prefix: str) -> None:
    """Texts as they are, numbers in digits, all else as JSON writes it; null is no field."""
    row = {
        "id": 2**53 + 1,
        "who": "ünï:x",
        "at": NOON,
        "price": Decimal("1.20"),
        "tags": ["a"],
        "more": {"a": 1},
        "ok": True,
        "rate": 0.1,
        "none": None,
    }
    schema = pa.schema(
        {
            "id": pa.int64(),
            "who": pa.string(),
            "at": pa.timestamp("us", "UTC"),
            "price": pa.decimal128(9, 2),
            "tags": pa.list_(pa.string()),
            "more": pa.struct([("a", pa.int64())]),
            "ok": pa.bool_(),
            "rate": pa.float64(),
            "none": pa.string(),
        }
    )
    table = pa.Table.from_pylist([row], schema=schema)
    forms: list[Any] = ["hash", "json"]
    for form in forms:
        job = Job("values")
        sink = RedisSink(server.url, f"{prefix}-{form}", ["id", "who"], form, expire="1 h")
        job.from_records(table).sink_to(sink)
        job.run(master="threads[1]")
    key = "9007199254740993:ünï%3Ax"
    with server.client() as client:
        assert client.hgetall(f"{prefix}-hash:{key}") == {
            "id": "9007199254740993",
            "who": "ünï:x",
            "at": "2026-02-28T12:00:00.123456Z",
            "price": "1.20",
            "tags": '["a"]',
            "more": '{"a":1}',
            "ok": "true",
            "rate": "0.1",
        }
        assert json.loads(client.get(f"{prefix}-json:{key}")) == {  # type: ignore[arg-type]
            **row,
            "at": "2026-02-28T12:00:00.123456Z",
            "price": 1.2,
        }
        assert 3_000_000 < client.pttl(f"{prefix}-hash:{key}") <= 3_600_000  # type: ignore[operator]


def test_the_last_row_of_a_key_counts_and_deletes_delete(server: RedisServer, prefix: str) -> None:
    """Updates that move a row to another key take the old one away; a field that is null now is gone."""
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    writer = open_writer(RedisSink(server.url, prefix, "k"), prefix, MemoryStore(), schema)
    writer.recover([])
    new, before, after, gone = RowKind
    checkpoints: list[list[tuple[int, str, int | None]]] = [
        [(new, "x", 1), (new, "y", 2), (new, "x", 3), (new, "z", 4), (gone, "z", 4)],
        [(before, "y", 2), (after, "w", 5), (before, "x", 3), (after, "x", None)],
        [(gone, "w", 5), (new, "w", 7), (gone, "q", 0)],
    ]
    seen = []
    for n, rows in enumerate(checkpoints, 1):
        kinds, *columns = zip(*rows, strict=True)
        batch = pa.record_batch([pa.array(c) for c in columns], schema=schema)
        writer.write(Records(batch, kind=np.array(kinds, np.int8)))
        writer.pre_commit(n).stage()
        writer.commit(n)
        with server.client() as client:
            seen.append({key: client.hget(f"{prefix}:{key}", "v") for key in server.keys(prefix)})
    writer.close()
    assert seen == [{"x": "3", "y": "2"}, {"x": None, "w": "5"}, {"x": None, "w": "7"}]


# --- Rows that are refused ------------------------------------------------------------------------------

BAD = pa.table({"k": pa.array([1, None, 2], pa.int64()), "v": [0.5, 1.5, float("nan")]})


def test_bad_rows_go_to_a_hash_of_their_own(server: RedisServer, prefix: str) -> None:
    job = Job("bad")
    sink = RedisSink(server.url, prefix, "k", form="json", bad_rows_to=f"{prefix}-bad")
    job.from_records(BAD).sink_to(sink, uid="out")
    job.run(master="threads[1]")
    assert server.keys(prefix) == ["1"]
    with server.client() as client:
        aside: Any = client.hgetall(f"{prefix}-bad")
    bad = [json.loads(each) for each in aside.values()]
    assert sorted((each["key"], each["reason"][:30]) for each in bad) == [
        ("2", "column 'v' holds nan: JSON has"),
        ("null (0)", "its key is null"),
    ]


def test_without_one_a_bad_row_ends_the_job_and_is_named(server: RedisServer, prefix: str) -> None:
    job = Job("bad")
    job.from_records(BAD).sink_to(RedisSink(server.url, prefix, "k", form="json"), uid="out")
    sentence = r"sink 'out': Redis \(.*\) refuses the row with key .*: its key is null. The row: .*bad_rows"
    with pytest.raises(JobFailedError, match=sentence):
        job.run(master="threads[1]")


def test_a_server_that_can_never_be_written_to_ends_the_job_at_once(prefix: str) -> None:
    with RedisServer(["--requirepass", "secret"]) as server:
        job = Job("wrong")
        sink = RedisSink(server.url.replace("//", "//:wrong@"), prefix, "n")
        job.from_records([{"n": 1}]).sink_to(sink, uid="out")
        with pytest.raises(JobFailedError, match=r"sink 'out': connecting: .*password"):
            job.run(master="threads[1]")


def test_a_redis_cluster_is_refused(prefix: str) -> None:
    with RedisServer(["--cluster-enabled", "yes"]) as server:
        job = Job("cluster")
        job.from_records([{"n": 1}]).sink_to(RedisSink(server.url, prefix, "n"), uid="out")
        with pytest.raises(JobFailedError, match="use a Redis without cluster mode"):
            job.run(master="threads[1]")


# --- Zombies, lost answers and rewinds ------------------------------------------------------------------


def test_what_an_overtaken_writer_has_sent_lands_no_more(server: RedisServer, prefix: str) -> None:
    """Its rows of a durable checkpoint come after those of a newer attempt: it read the ledger before."""
    store, sink = MemoryStore(), RedisSink(server.url, prefix, "n", delivery_timeout="1 s")
    with AnswerProxy(server.port) as proxy:
        slow = RedisSink(server.url.replace(str(server.port), str(proxy.port)), prefix, "n")
        zombie = open_writer(slow, prefix, store)
        zombie.recover([])
        zombie.write(Records(pa.record_batch({"n": [1]})))
        promised = zombie.pre_commit(1).stage()
        outcome: list[BaseException] = []

        def commit() -> None:
            try:
                zombie.commit(1)
            except Fenced as error:
                outcome.append(error)

        proxy.hold(b"EVALSHA")
        thread = threading.Thread(target=commit)
        thread.start()
        assert proxy.holds.wait(WAIT_S)
        newer = open_writer(sink, prefix, store, attempt=2)
        newer.recover([promised])
        with server.client() as client:
            client.delete(f"{prefix}:1")  # it would be seen if it were written once more
        proxy.let_go()
        thread.join(WAIT_S)
    assert len(outcome) == 1
    assert server.keys(prefix) == []
    newer.close()


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("number", [1, 2], ids=["rows", "ledger"])
def test_a_call_without_an_answer_is_made_again(
    number: int, is_done: bool, server: RedisServer, prefix: str
) -> None:
    with AnswerProxy(server.port) as proxy:
        sink = RedisSink(server.url.replace(str(server.port), str(proxy.port)), prefix, "n")
        writer = open_writer(sink, prefix, MemoryStore())
        writer.recover([])
        proxy.swallow(b"EVALSHA", number, is_done)
        for n in (1, 2):
            writer.write(Records(pa.record_batch({"n": [n]})))
            writer.pre_commit(n).stage()
            writer.commit(n)
        writer.close()
        assert proxy.has_swallowed
    assert server.keys(prefix) == ["1", "2"]


def test_a_server_that_is_killed_comes_back_with_all_that_was_committed(prefix: str) -> None:
    with RedisServer() as server:
        writer = open_writer(RedisSink(server.url, prefix, "n"), prefix, MemoryStore())
        writer.recover([])
        for n in (1, 2):
            writer.write(Records(pa.record_batch({"n": [n]})))
            writer.pre_commit(n).stage()
            server.kill()
            restarting = threading.Thread(target=server.start)
            restarting.start()
            writer.commit(n)
            restarting.join(WAIT_S)
        assert server.keys(prefix) == ["1", "2"]
        writer.close()


def test_a_redis_that_has_forgotten_ends_the_job(server: RedisServer, prefix: str) -> None:
    """It was started without its data, or its ledger was evicted."""
    writer = open_writer(RedisSink(server.url, prefix, "n"), prefix, MemoryStore())
    writer.recover([])
    for n in (1, 2):
        writer.write(Records(pa.record_batch({"n": [n]})))
        writer.pre_commit(n).stage()
        if n == 2:
            with server.client() as client:
                client.flushall()
            with pytest.raises(DataLossError, match="says nothing, and it was at 1: it was deleted"):
                writer.commit(n)
        else:
            writer.commit(n)
    writer.close()
