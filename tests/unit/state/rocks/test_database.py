"""Database: what is frozen stays as it was, also for another thread; wakes come in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from onceflow.runtime.errors import Retryable
from onceflow.runtime.records import WATERMARK_MIN_MS
from onceflow.runtime.state.rocks.database import Database, SharedMemory, Wake
from onceflow.runtime.state.rocks.row_ids import identities_of
from onceflow.runtime.state.rocks.scratch import ScratchFolder


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(SharedMemory(1 << 20), ScratchFolder(tmp_path))
    yield made
    made.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def row_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_what_is_frozen_stays_as_it_was(database: Database) -> None:
    before = [(row_id(n), b"before" * 20) for n in range(3_000)]
    database.put(before)
    frozen = database.freeze()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(next, frozen).result() == before[0]
        for again in range(5):
            database.put([(key, b"%d" % again * 100) for key, _ in before])
        database.delete(key for key, _ in before[:50])
        assert other.submit(list, frozen).result() == before[1:]
    assert database.get([row_id(0), row_id(60), row_id(9_999)]) == [None, b"4" * 100, None]
    assert database.get([key for key, _ in before]) == [None] * 50 + [b"4" * 100] * 2_950


def test_wakes_come_by_time_and_kind(database: Database) -> None:
    wakes = [Wake(5, row_id(1)), Wake(-3, row_id(2)), Wake(5, row_id(0)), Wake(WATERMARK_MIN_MS, row_id(3))]
    database.put([(row_id(7), b"a row is no wake")])
    for kind, some in ((0, wakes), (1, [Wake(1, row_id(9))])):
        times = np.array([wake.time_ms for wake in some])
        database.put_wakes(kind, times, identities_of([wake.row_id for wake in some]))
    assert list(database.wakes(0, WATERMARK_MIN_MS)) == sorted(wakes)
    assert list(database.wakes(1, WATERMARK_MIN_MS)) == [Wake(1, row_id(9))]
    assert list(database.wakes(0, 0)) == [Wake(5, row_id(0)), Wake(5, row_id(1))]
    database.delete_wakes(0, wakes[1:])
    assert list(database.wakes(0, WATERMARK_MIN_MS)) == [Wake(5, row_id(1))]
    assert [content for _, content in database.freeze()] == [b"a row is no wake"]


def test_a_place_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    folder = ScratchFolder(tmp_path)
    (folder.path / "db").write_text("in the way")
    with pytest.raises(Retryable, match=r"RocksDB can't use .*db"):
        Database(SharedMemory(1 << 20), folder)
    assert not folder.path.exists()
