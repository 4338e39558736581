"""KinesisPlanner on a server: each record in one batch, whatever is split and merged meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.kinesis import KinesisSource
from onceflow.connectors.kinesis.batches import SETTLED_MS
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import BatchedSource, BatchLimit, BatchPlanner
from onceflow.runtime.errors import DataLossError
from onceflow.structured_streaming.any_source.batch_reading import RowShape, read_splits
from tests.kinesis_server import WHY_NOT, KinesisServer

pytestmark = [pytest.mark.kinesis, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SCHEMA = pa.schema([("n", pa.int64())])
WAIT_S = 240


@pytest.fixture(scope="module")
def server() -> Iterator[KinesisServer]:
    with KinesisServer(reshards=True) as server:
        yield server


def put(server: KinesisServer, stream: str, first: int, stop: int) -> None:
    server.put_many(stream, [(f"k{n}", json.dumps({"n": n}).encode()) for n in range(first, stop)])


def planner_of(source: KinesisSource, **limit: int) -> BatchPlanner:
    assert isinstance(source, BatchedSource)
    return source.open_planner(SystemClock(), BatchLimit(**limit))


def source_of(server: KinesisServer, stream: str, **options: Any) -> KinesisSource:
    return KinesisSource(stream=stream, value=Json(SCHEMA), fetch_interval="1 ms", **server.place, **options)


def read(source: KinesisSource, planner: BatchPlanner, begin: Any, end: Any) -> list[int]:
    tasks = planner.tasks(begin, end)
    batches = [batch for task in tasks for batch in read_splits(source, task, RowShape(SCHEMA))]
    return sorted(n for batch in batches for n in batch.column("n").to_pylist())


def next_batch(planner: BatchPlanner, place: Any) -> Any:
    """The place behind the next batch; the stream has one."""
    deadline = time.monotonic() + WAIT_S
    while (end := json.loads(json.dumps(planner.next(place)))) == place:
        assert time.monotonic() < deadline, "there is no batch"
        threading.Event().wait(0.1)
    return end


def test_each_record_is_in_one_batch_over_splits_and_merges(server: KinesisServer) -> None:
    stream = server.new_stream(2)
    source = source_of(server, stream)
    place = planner_of(source).first()
    place = next_batch(planner_of(source), place)  # where the stream begins
    seen: list[int] = []
    for turn, reshard in enumerate([None, server.split, server.merge, None]):
        put(server, stream, 40 * turn, 40 * turn + 20)
        if reshard is not None:
            reshard(stream, 0)
        put(server, stream, 40 * turn + 20, 40 * turn + 40)
        while len(seen) < 40 * turn + 40:
            planner = planner_of(source)  # a new one, as after a kill
            end = next_batch(planner, place)
            batch = read(source, planner, place, end)
            assert batch == read(source, planner_of(source), place, end), "it is the same when read again"
            seen += batch
            place = end
    assert sorted(seen) == list(range(160))


def test_held_it_goes_up_to_what_is_there_and_no_further(server: KinesisServer) -> None:
    stream = server.new_stream(1)
    put(server, stream, 0, 10)
    source = source_of(server, stream)
    planner = planner_of(source)
    began = time.monotonic()
    planner.hold()
    assert time.monotonic() - began > SETTLED_MS / 1_000 - 1
    put(server, stream, 10, 20)
    first = planner.next(planner.first())
    end = planner.next(first)
    assert read(source, planner, first, end) == list(range(10))
    assert planner.next(end) == end


def test_from_now_on_and_what_is_gone(server: KinesisServer) -> None:
    stream = server.new_stream(1)
    put(server, stream, 0, 10)
    server.wait_until_all_is_past()
    source = source_of(server, stream, start="latest")
    planner = planner_of(source)
    first = planner.next(planner.first())
    assert planner.tasks(planner.first(), first) == []
    put(server, stream, 10, 20)
    end = next_batch(planner, first)
    assert read(source, planner, first, end) == list(range(10, 20))
    old = {**first, "until_ms": first["until_ms"] - 25 * 3_600_000}
    with pytest.raises(DataLossError, match="may have been trimmed"):
        planner.tasks(old, end)
    with pytest.raises(DataLossError, match="deleted and made anew"):
        planner.tasks(first, {**end, "created_ms": 1})
