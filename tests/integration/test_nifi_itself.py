"""NifiSource on NiFi itself: what the server of the other tests says is what NiFi does. Run by make soak: its
parts are 200 MB, and it takes a minute to start."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.nifi import NifiSource
from tests.integration.read_queues import WAIT_S, barrier, numbers, open_reader, read
from tests.nifi_process import TTL_S, NifiProcess, Passage

pytestmark = pytest.mark.soak
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module")
def nifi() -> Iterator[NifiProcess]:
    with NifiProcess() as nifi:
        yield nifi


def put(passage: Passage, values: range) -> None:
    passage.put([json.dumps({"n": n}).encode() for n in values], filename="a.json")


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.1)


def source_of(nifi: NifiProcess, passage: Passage) -> NifiSource:
    columns = {"file": "filename"}
    return NifiSource(
        urls=nifi.url, port=passage.port, value=Json(SCHEMA), id_column="id", attribute_columns=columns
    )


def confirm_what_comes_again(reader: Any, passage: Passage) -> None:
    """Confirm what NiFi gives until it has nothing more; none of it may count."""
    deadline, checkpoint_id = time.monotonic() + WAIT_S, 1
    while passage.waiting():
        assert time.monotonic() < deadline
        while (fetch := reader.poll(0, 100)) is not None:
            assert fetch.records.num_rows == 0
        checkpoint_id += 1
        barrier(reader, checkpoint_id)
        reader.on_completed(checkpoint_id)
        threading.Event().wait(0.2)


def rolled_back(nifi: NifiProcess) -> int:
    return nifi.log().count("rollback its session")


def test_a_transaction_lives_on_and_is_confirmed(nifi: NifiProcess) -> None:
    passage, before = nifi.create(), rolled_back(nifi)
    put(passage, range(3_000))
    with closing(open_reader(source_of(nifi, passage))) as reader:
        rows = read(reader, lambda seen: len(seen) == 3_000)
        threading.Event().wait(3 * TTL_S)
        assert (rolled_back(nifi), passage.waiting()) == (before, 3_000)
        barrier(reader, 1)
        reader.on_completed(1)
        wait_until(lambda: passage.waiting() == 0)
    assert numbers(rows) == list(range(3_000))
    assert {row["file"] for row in rows} == {"a.json"}
    assert rolled_back(nifi) == before


@pytest.mark.parametrize("ends_in_order", [True, False])
def test_what_is_given_back_comes_again_and_is_known(nifi: NifiProcess, ends_in_order: bool) -> None:
    """When the reader ends NiFi is told so; one that dies is forgotten after the time of its transaction."""
    passage, before = nifi.create(), rolled_back(nifi)
    put(passage, range(5))
    first = open_reader(source_of(nifi, passage))
    read(first, lambda seen: len(seen) == 5)
    position = barrier(first, 1)
    if not ends_in_order:
        for queue in first._queues.values():
            queue.deliveries._held.clear()
    first.close()
    put(passage, range(5, 6))
    with closing(open_reader(source_of(nifi, passage), position)) as second:
        assert numbers(read(second, lambda seen: len(seen) == 1)) == [5]
        confirm_what_comes_again(second, passage)
    assert rolled_back(nifi) == before + 1
