"""OpenSearchSink on a real OpenSearch and a real Elasticsearch: the contract, values, keys, bad rows, zombies
and lost answers."""

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
from onceflow.runtime.errors import DataLossError, Fenced, JobFailedError
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import SINK_CHECKS, SinkUnderTest
from onceflow.sinks.opensearch import OpenSearchSink
from tests.integration.streaming_query import Query
from tests.integration.test_structured_streaming_sink import forget_last_commit
from tests.opensearch_server import ElasticsearchServer, OpenSearchServer
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

pytestmark = pytest.mark.opensearch
ROWS, LEDGER = b'"version_type":"external"', rb"checkpoint\":"
"""Words of the requests that write rows, and change a ledger that is there."""


@pytest.fixture(
    scope="module", params=[OpenSearchServer, ElasticsearchServer], ids=["opensearch", "elasticsearch"]
)
def server(request: pytest.FixtureRequest) -> Iterator[OpenSearchServer]:
    with request.param() as server:
        yield server


@pytest.fixture
def index() -> str:
    return f"i{uuid.uuid4().hex[:10]}"


def sink_at(port: int, index: str, key: Any = "n", **options: Any) -> OpenSearchSink:
    given = {"create_index": True, "delivery_timeout": "20 s", **options}
    return OpenSearchSink(f"http://127.0.0.1:{port}", index, key, **given)


def values(server: OpenSearchServer, index: str) -> dict[str, Any]:
    return {key: document.get("v") for key, document in server.documents(index).items()}


# --- The contract ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_the_contract_of_sinks(
    check: Callable[[SinkUnderTest], None], server: OpenSearchServer, index: str
) -> None:
    sink = sink_at(server.port, index, delivery_timeout="1 s")
    keeps_the_contract(check, sink, index, lambda: sorted(map(int, server.documents(index))))


# --- Values ---------------------------------------------------------------------------------------------


def test_a_row_is_a_document_under_its_key(server: OpenSearchServer, index: str) -> None:
    row = {
        "id": 2**53 + 1,
        "who": 'ünï:"x',
        "at": dt.datetime(2026, 2, 28, 12, 0, 0, 123456, dt.UTC),
        "price": Decimal("1.20"),
        "tags": ["a"],
        "more": {"a": 1},
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
            "none": pa.string(),
        }
    )
    job = Job("values")
    mapping = {"mappings": {"properties": {"who": {"type": "keyword"}}}}
    sink = sink_at(server.port, index, ["id", "who"], create_index=mapping)
    job.from_records(pa.Table.from_pylist([row], schema=schema)).sink_to(sink)
    job.run(master="threads[1]")
    (found,) = server.documents(index).items()
    assert found[0] == '9007199254740993:ünï%3A"x'
    assert found[1] == {**row, "at": "2026-02-28T12:00:00.123456Z", "price": 1.2}
    told = server.ask("GET", f"/{index}")[index]
    assert told["mappings"]["properties"]["who"]["type"] == "keyword"
    assert told["settings"]["index"]["gc_deletes"] == "1h"


def test_the_last_row_of_a_key_counts_and_deletes_delete(server: OpenSearchServer, index: str) -> None:
    sink = sink_at(server.port, index, "k")
    assert changes_are_applied(sink, index, lambda: values(server, index)) == CHANGES_SEEN


def test_many_rows_go_out_in_pieces(server: OpenSearchServer, index: str) -> None:
    writer = open_writer(sink_at(server.port, index), index, MemoryStore())
    writer.recover([])
    checkpoint(writer, 1, Records(pa.record_batch({"n": list(range(9_000))})))
    writer.close()
    assert len(server.documents(index)) == 9_000


# --- Rows and places that are refused --------------------------------------------------------------------

BAD = pa.table(
    {"k": ["good", None, "x" * 513, "", "text"], "v": ["1", "2", "3", "4", "no number"]},
)
NUMBERS_ONLY = {"mappings": {"properties": {"v": {"type": "long"}}}}


def test_bad_rows_go_to_an_index_of_their_own(server: OpenSearchServer, index: str) -> None:
    job = Job("bad")
    sink = sink_at(server.port, index, "k", create_index=NUMBERS_ONLY, bad_rows_to=f"{index}-bad")
    job.from_records(BAD).sink_to(sink, uid="out")
    job.run(master="threads[1]")
    assert server.documents(index) == {"good": {"k": "good", "v": "1"}}
    found = sorted((each["key"][:8], each["reason"]) for each in server.documents(f"{index}-bad").values())
    assert [key for key, _ in found] == ["", "null (0)", "text", "xxxxxxxx"]
    assert [reason.split(" of ")[0].split(",")[0] for _, reason in found] == [
        "its key is the empty text",
        "its key is null",
        "failed to parse field [v]",
        "its key has 513 bytes",
    ]


def test_without_one_a_bad_row_ends_the_job_and_is_named(server: OpenSearchServer, index: str) -> None:
    job = Job("bad")
    sink = sink_at(server.port, index, "k", create_index=NUMBERS_ONLY)
    job.from_records(BAD.slice(4)).sink_to(sink, uid="out")
    sentence = rf"sink 'out': index {index} refuses the row with key text: failed to parse .*bad_rows_to="
    with pytest.raises(JobFailedError, match=sentence):
        job.run(master="threads[1]")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"index.gc_deletes": "60s"}, r"forgets deletes after 60s .index.gc_deletes.*PUT .*_settings"),
        ({}, r"forgets deletes after 60s"),
        ({"index.gc_deletes": "-1"}, r"forgets deletes after -1"),
        ({"index.gc_deletes": "1h", "index.translog.durability": "async"}, "durability async: rows that"),
        (None, "there is no index '.*': make it before, or say create_index=True"),
    ],
)
def test_an_index_that_would_lose_rows_in_silence_is_refused(
    settings: Any, says: str, server: OpenSearchServer, index: str
) -> None:
    if settings is not None:
        server.ask("PUT", f"/{index}", {"settings": settings})
    job = Job("refused")
    job.from_records([{"n": 1}]).sink_to(sink_at(server.port, index, create_index=False), uid="out")
    with pytest.raises(JobFailedError, match=says):
        job.run(master="threads[1]")


def test_an_alias_of_one_index_is_written_and_of_two_refused(server: OpenSearchServer, index: str) -> None:
    for n in (1, 2):
        body = {"settings": {"index.gc_deletes": "1h"}, "aliases": {f"{index}-alias": {}}}
        server.ask("PUT", f"/{index}-{n}", body)
        job = Job("alias")
        sink = sink_at(server.port, f"{index}-alias", create_index=False)
        job.from_records([{"n": n}]).sink_to(sink, uid="out")
        if n == 1:
            job.run(master="threads[1]")
            assert list(server.documents(f"{index}-1")) == ["1"]
            continue
        with pytest.raises(JobFailedError, match="stands for 2 indices: name one of them"):
            job.run(master="threads[1]")


def test_others_documents_with_versions_are_replaced(server: OpenSearchServer, index: str) -> None:
    """Times in ns as external versions are the highest that are in use."""
    server.ask("PUT", f"/{index}", {"settings": {"index.gc_deletes": "1h"}})
    server.ask("PUT", f"/{index}/_doc/1?version_type=external&version=1795600000000000000", {"n": 0})
    writer = open_writer(sink_at(server.port, index), index, MemoryStore())
    writer.recover([])
    checkpoint(writer, 1, number(1))
    writer.close()
    assert server.documents(index) == {"1": {"n": 1}}


# --- Zombies, lost answers and rewinds ------------------------------------------------------------------


def test_what_an_overtaken_writer_has_sent_replaces_nothing(server: OpenSearchServer, index: str) -> None:
    ended = overtaken(lambda port: sink_at(port, index, "k"), server.port, index, ROWS)
    assert ended is Fenced
    assert values(server, index) == {"k": 20}


def test_after_going_back_what_is_written_from_then_on_wins(server: OpenSearchServer, index: str) -> None:
    goes_back(lambda: sink_at(server.port, index, "k"), index)
    assert values(server, index) == {"k": 21}


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("word", [ROWS, LEDGER], ids=["rows", "ledger"])
def test_a_request_without_an_answer_is_made_again(
    word: bytes, is_done: bool, server: OpenSearchServer, index: str
) -> None:
    without_an_answer(lambda port: sink_at(port, index), server.port, index, word, 1, is_done)
    assert sorted(server.documents(index)) == ["1", "2"]


@pytest.mark.soak
def test_a_server_that_is_killed_comes_back_with_all_that_was_committed(
    server: OpenSearchServer, index: str
) -> None:
    sink = sink_at(server.port, index, delivery_timeout="2 min")
    server_is_killed(sink, index, server.kill, server.start)
    assert sorted(server.documents(index)) == ["1", "2"]


def test_an_index_that_was_made_anew_ends_the_job(server: OpenSearchServer, index: str) -> None:
    """Its rows are gone, and the ledger of the old one is not its own."""
    writer = open_writer(sink_at(server.port, index), index, MemoryStore())
    writer.recover([])
    checkpoint(writer, 1, number(1))
    server.ask("DELETE", f"/{index}")
    server.ask("PUT", f"/{index}", {"settings": {"index.gc_deletes": "1h"}})
    with pytest.raises(DataLossError, match="says nothing, and it was at 1: it was deleted"):
        checkpoint(writer, 2, number(2))
    writer.close()


# --- Structured Streaming --------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.soak
def test_micro_batches_keep_the_last_row_of_each_key(
    spark: Any, server: OpenSearchServer, index: str, tmp_path: Path
) -> None:
    options = {"url": server.url, "index": index, "key": "id", "create_index": "true"}
    query = Query(spark, tmp_path, "onceflow-opensearch", **options)
    for batch in range(2):
        query.add(*({"id": n, "name": f"n{batch}"} for n in range(batch, 4)))
        query.run()
        forget_last_commit(query.checkpoint)
        query.run(lambda rows: rows.selectExpr("id + 100 as id", "name"))
    names = {key: document["name"] for key, document in server.documents(index).items()}
    assert names == {"0": "n0", "1": "n1", "2": "n1", "3": "n1"}
