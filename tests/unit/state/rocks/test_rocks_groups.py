"""RocksGroups: keys go and come back with all their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.records import Indices
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.number_columns import NumberColumn
from onceflow.runtime.state.overflow import NO_WAKE_MS
from onceflow.runtime.state.tables import Layout, grouped_table
from onceflow.runtime.testing.tight_state import tight_rocksdb

SCHEMA = pa.schema([pa.field("user", pa.int64())])


class Kept:
    """Any numbers for each user."""

    def __init__(self, backend: Any) -> None:
        self.numbers = NumberColumn()
        self.table = grouped_table(Layout(["user"], SCHEMA, {"n": self.numbers}))
        self.overflow = backend.grouped_overflow(self.table, ["n"])

    def keys(self, *users: int) -> Indices:
        batch = pa.record_batch([pa.array(users, pa.int64())], SCHEMA)
        found: Indices = self.overflow.find_keys(batch, hash_keys(batch, ["user"]))
        return found

    def add(self, user: int, *numbers: int) -> None:
        rows = self.table.add(self.keys(user).repeat(len(numbers)))
        self.numbers.put(rows, np.array(numbers))

    def of(self, user: int) -> list[int]:
        return sorted(self.numbers.of(self.table.rows_of_keys(self.keys(user))).tolist())

    def here(self) -> list[int]:
        return sorted(set(self.table.keys(self.table.rows()).column("user").to_pylist()))

    def let_go(self, **wakes: int) -> list[int]:
        """All that go, with these times to wake at; returns who is still in memory."""
        going = self.overflow.going()
        users = [self.table.keys(self.table.rows_of_keys(going[n : n + 1]))[0][0] for n in range(len(going))]
        times = [wakes.get(f"u{user.as_py()}", NO_WAKE_MS) for user in users]
        self.overflow.make_room(going, {0: np.array(times, np.int64)})
        return self.here()

    def snapshot(self) -> list[tuple[int, int]]:
        frozen = self.overflow.freeze(8)
        rows = [row for n in range(len(frozen)) for row in frozen.piece(n, n + 1).to_pylist()]
        return sorted((row["key"]["user"], row["n"]) for row in rows)


@pytest.fixture
def kept() -> Iterator[Kept]:
    with tight_rocksdb() as backend:
        made = Kept(backend)
        for user in (1, 2, 3, 4):
            made.add(user, 10 * user, 10 * user + 1, 10 * user + 2)
        yield made
        made.overflow.close()


def test_who_was_used_least_lately_goes_with_all_rows_and_comes_back(kept: Kept) -> None:
    kept.keys(1)
    assert kept.let_go() == [1, 4]
    assert kept.of(3) == [30, 31, 32]
    assert kept.here() == [1, 3, 4]
    kept.add(2, 23)
    assert kept.of(2) == [20, 21, 22, 23]
    assert kept.of(9) == []


def test_a_snapshot_has_each_row_once_and_none_of_a_key_that_has_lost_them(kept: Kept) -> None:
    kept.let_go()
    kept.add(1, 13)
    kept.table.remove(kept.table.rows_of_keys(kept.keys(2)))
    there = [
        (1, 10),
        (1, 11),
        (1, 12),
        (1, 13),
        *((user, 10 * user + n) for user in (3, 4) for n in range(3)),
    ]
    assert kept.snapshot() == there
    kept.let_go()
    assert kept.snapshot() == there
    assert kept.of(2) == []


def test_keys_wake_in_order_and_only_once(kept: Kept) -> None:
    assert kept.let_go(u1=7, u2=5) == [3, 4]
    assert kept.overflow.first_wake(0) == 5
    assert kept.overflow.wake(0, 6, 10) == 6
    assert kept.here() == [2, 3, 4]
    assert kept.overflow.first_wake(0) == 7
    assert kept.overflow.wake(0, 9, 10) == 9
    assert kept.here() == [1, 2, 3, 4]
    assert kept.overflow.first_wake(0) is None


def test_the_rows_of_a_key_may_be_restored_some_at_a_time_and_with_columns_that_there_are_no_more() -> None:
    with tight_rocksdb() as backend:
        kept = Kept(backend)
        for n, user in enumerate((1, 2, 3, 1, 2, 1)):
            key = pa.StructArray.from_arrays([pa.array([user], pa.int64())], fields=list(SCHEMA))
            kept.overflow.load(pa.record_batch({"key": key, "n": pa.array([n]), "old": pa.array(["x"])}))
            while kept.overflow.needs_room():
                kept.let_go()
        assert len(kept.table) <= 2
        assert kept.snapshot() == [(1, 0), (1, 3), (1, 5), (2, 1), (2, 4), (3, 2)]
        assert [kept.of(user) for user in (1, 2, 3)] == [[0, 3, 5], [1, 4], [2]]
        kept.overflow.close()
