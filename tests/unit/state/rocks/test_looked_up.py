"""What a live question looks up in RocksDB: keys with the starts that are there, and no more than it may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.errors import UsageError
from onceflow.runtime.records import WATERMARK_MIN_MS
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.hashing import with_start
from onceflow.runtime.state.rocks.database import Database, SharedMemory
from onceflow.runtime.state.rocks.looked_up import looked_up, with_starts
from onceflow.runtime.state.rocks.row_ids import distinct, row_ids
from onceflow.runtime.state.rocks.scratch import ScratchFolder

ASKED = AskedKeys(pa.record_batch({"user": ["a", "b"]}))
FROM = {0: WATERMARK_MIN_MS}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(SharedMemory(1 << 20), ScratchFolder(tmp_path))
    yield made
    made.close()


def wake(database: Database, kind: int, *times: int) -> None:
    """Each of the keys wakes at each of these times."""
    for time_ms in times:
        database.put_wakes(kind, np.full(len(ASKED), time_ms, np.int64), ASKED.identities)


def test_each_key_is_looked_for_with_each_start_that_is_there(database: Database) -> None:
    wake(database, 0, 0, -10, 10**15, 10)
    wake(database, 1, 77)
    units = with_starts(database, FROM, ASKED)
    pairs = [(time_ms, n) for time_ms in (-10, 0, 10, 10**15) for n in range(2)]
    hashes = [int(with_start(ASKED.hashes[n : n + 1], np.array([time_ms]))[0]) for time_ms, n in pairs]
    assert units.tolist() == [[h, int(ASKED.checks[n])] for h, (_, n) in zip(hashes, pairs, strict=True)]
    assert len(with_starts(database, {0: 1}, ASKED)) == 4
    assert len(with_starts(database, {}, ASKED)) == 0


def test_too_many_starts_are_refused(database: Database) -> None:
    wake(database, 0, *range(5))
    assert len(with_starts(database, FROM, ASKED, lookups_max=10)) == 10
    with pytest.raises(
        UsageError, match="has 5 starts of windows or more on disk, and a live answer looks for 9"
    ):
        with_starts(database, FROM, ASKED, lookups_max=9)


def test_rows_are_found_and_counted(database: Database) -> None:
    units = distinct(ASKED.identities)
    first, second = row_ids(units)
    database.put([(second, b"xy")])
    assert looked_up(database, units, None, ASKED, 0)[0] == [b"xy"]
    database.put([(first, b"abc")])
    rows, hashes = looked_up(database, units, lambda content: [bytes([c]) for c in content], ASKED, 0)
    assert rows == [b"a", b"b", b"c", b"x", b"y"]
    assert hashes.tolist() == [units[0, 0]] * 3 + [units[1, 0]] * 2
    few = AskedKeys(ASKED.batch, rows_max=3)
    assert len(looked_up(database, units, None, few, 1)[0]) == 2
    with pytest.raises(UsageError, match="have 4 rows or more"):
        looked_up(database, units, None, few, 2)
