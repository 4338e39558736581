"""CdcPlanner on a server: each change is in one batch, and a batch can be read again until it is done."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.connectors.postgres_cdc.settings import lsn_of
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import BatchedSource, BatchLimit, BatchPlanner
from onceflow.runtime.errors import DataLossError, OptionError
from onceflow.structured_streaming.any_source.batch_reading import RowShape, read_splits
from tests.cdc_tables import MANY_SLOTS, SCHEMA, WAIT_S, Table, make_table
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres
SHAPE = RowShape(pa.schema([*SCHEMA, ("kind", pa.string())]), "kind")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(MANY_SLOTS) as server:
        yield server


@pytest.fixture
def table(server: PostgresServer) -> Table:
    return make_table(server)


def planner_of(source: PostgresCdcSource, **limit: int) -> BatchPlanner:
    assert isinstance(source, BatchedSource)
    return source.open_planner(SystemClock(), BatchLimit(**limit))


def read(source: PostgresCdcSource, begin: Any, end: Any) -> list[tuple[Any, ...]]:
    tasks = planner_of(source).tasks(begin, end)
    rows = [row for task in tasks for batch in read_splits(source, task, SHAPE) for row in batch.to_pylist()]
    return [tuple(row.values()) for row in rows]


def next_batch(planner: BatchPlanner, place: Any) -> Any:
    deadline = time.monotonic() + WAIT_S
    while (end := json.loads(json.dumps(planner.next(place)))) == place:
        assert time.monotonic() < deadline, "there is no batch"
        threading.Event().wait(0.1)
    return end


def slot_at(table: Table) -> int:
    (found,) = table.server.rows(
        f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{table.name}'"
    )
    return lsn_of(found)


def test_changes_come_once_and_again_until_their_batch_is_done(table: Table) -> None:
    source = table.source(start="slot")
    first = planner_of(source).first()
    begin = next_batch(planner_of(source), first)
    assert read(source, first, begin) == []
    assert planner_of(source).next(begin) == begin, "nothing has changed"
    table.server.execute(
        f"INSERT INTO {table.name} VALUES (1, 'a'), (2, 'b')",
        f"UPDATE {table.name} SET name = 'c' WHERE id = 1",
    )
    end = next_batch(planner_of(source), begin)
    changes = [
        (1, "a", "insert"),
        (2, "b", "insert"),
        (1, "a", "update_before"),
        (1, "c", "update_after"),
    ]
    assert read(source, begin, end) == changes
    table.server.execute(f"DELETE FROM {table.name} WHERE id = 2")
    assert read(source, begin, end) == changes, "the slot has stayed"
    last = next_batch(planner_of(source), end)
    assert read(source, end, last) == [(2, "b", "delete")]
    planner_of(source).done(end)
    assert slot_at(table) >= end["position"]["lsn"]
    assert read(source, end, last) == [(2, "b", "delete")]
    with pytest.raises(DataLossError, match=r"changes of table .* in between are gone"):
        read(source, begin, end)
    planner_of(source).done(last)
    assert planner_of(source).next(last) == last


def test_a_batch_ends_anywhere_in_the_log_and_none_is_lost(table: Table) -> None:
    source = table.source(start="slot")
    place = next_batch(planner_of(source), planner_of(source).first())
    for n in range(20):
        table.server.execute(f"INSERT INTO {table.name} VALUES ({2 * n}, 'a'), ({2 * n + 1}, 'b')")
    planner = planner_of(source, bytes=400)
    planner.hold()
    table.server.execute(f"INSERT INTO {table.name} VALUES (100, 'later')")
    seen: list[int] = []
    batches = 0
    while (end := planner.next(place)) != place:
        rows = [row[0] for row in read(source, place, end)]
        assert len(rows) % 2 == 0, "transactions are whole"
        seen += rows
        batches += 1
        planner.done(end)
        place = end
    assert seen == list(range(40))
    assert batches > 5


def test_the_rows_that_are_there_are_none_of_a_batch(table: Table) -> None:
    with pytest.raises(OptionError, match='gives its changes alone: use start="slot"'):
        planner_of(table.source())
