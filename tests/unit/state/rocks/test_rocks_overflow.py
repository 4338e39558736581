"""RocksOverflow: who goes, who comes back, and what a snapshot has of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.records import Indices
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.heap.memory_share import MemoryShare
from onceflow.runtime.state.overflow import NO_ROWS, NO_WAKE_MS, Overflow
from onceflow.runtime.state.rocks.database import Database
from onceflow.runtime.state.row_values import Cursor, DeclaredStates, RowValues, ValueCodec
from onceflow.runtime.state.tables import Layout, tracked_table
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import tight_rocksdb

SCHEMA = pa.schema([pa.field("user", pa.int64())])


class Kept:
    """A number for each user, as an operator keeps it."""

    def __init__(self, backend: Any) -> None:
        self.values = RowValues(ValueCodec("n", int), Cursor())
        layout = Layout(["user"], SCHEMA, {"state": DeclaredStates({"n": self.values})})
        self.table = tracked_table(layout)
        made = backend.overflow(self.table, layout)
        assert made is not None
        self.overflow: Overflow = made

    def rows(self, *users: int) -> Indices:
        batch = pa.record_batch([pa.array(users, pa.int64())], SCHEMA)
        return self.overflow.find_or_add(batch, hash_keys(batch, ["user"]))

    def put(self, **values: int) -> None:
        for row, value in zip(self.rows(*(int(u[1:]) for u in values)), values.values(), strict=True):
            self.values.values[row] = value

    def get(self, *users: int) -> list[int | None]:
        return [self.values.values[row] for row in self.rows(*users)]

    def let_go(self, **wakes: int) -> list[int]:
        """All that go, with these times to wake at; returns who is still in memory."""
        going = self.overflow.going()
        users = self.table.keys(going).column("user").to_pylist()
        times = np.array([wakes.get(f"u{user}", NO_WAKE_MS) for user in users], np.int64)
        self.overflow.make_room(going, {0: times}, NO_ROWS)
        return self.here()

    def here(self) -> list[int]:
        users: list[int] = self.table.keys(np.arange(self.table.size)).column("user").to_pylist()
        return users

    def snapshot(self) -> dict[int, int | None]:
        frozen = self.overflow.freeze(8)
        pieces = [frozen.piece(n, n + 1) for n in range(len(frozen))]
        assert (
            len({piece.schema for piece in pieces} | {frozen.piece(0, 0).schema} if not pieces else [1]) == 1
        )
        rows = [row for piece in pieces for row in piece.to_pylist()]
        found = {row["key"]["user"]: row["state"]["n"] for row in rows}
        assert len(found) == len(rows), "no row twice"
        return found


@pytest.fixture
def kept() -> Iterator[Kept]:
    with tight_rocksdb() as backend:
        made = Kept(backend)
        yield made
        made.overflow.close()


def test_who_was_used_least_lately_goes_and_comes_back(kept: Kept) -> None:
    kept.put(u1=10, u2=20, u3=30, u4=40)
    assert kept.get(1) == [10]
    assert kept.let_go() == [1, 4]
    assert kept.get(3, 4) == [30, 40]
    assert kept.here() == [1, 4, 3]
    assert kept.get(2, 2, 9) == [20, 20, None]


def test_a_snapshot_has_each_row_once_as_it_is_now(kept: Kept) -> None:
    kept.put(u1=10, u2=20, u3=30, u4=40)
    kept.let_go()
    kept.let_go()
    assert kept.snapshot() == {1: 10, 2: 20, 3: 30, 4: 40}
    kept.put(u2=21, u5=50)
    frozen = kept.overflow.freeze(8)
    kept.put(u1=11)
    kept.let_go()
    found = {row["key"]["user"]: row["state"]["n"] for row in frozen.piece(0, 5).to_pylist()}
    assert found == {1: 10, 2: 21, 3: 30, 4: 40, 5: 50}
    assert kept.snapshot() == {1: 11, 2: 21, 3: 30, 4: 40, 5: 50}


def test_what_is_removed_does_not_come_back(kept: Kept) -> None:
    kept.put(u1=10, u2=20)
    kept.let_go()
    kept.put(u1=11, u3=30)
    kept.overflow.remove(kept.rows(1, 3))
    assert kept.overflow.compact() is not None
    assert kept.get(1, 3) == [None, None]
    assert kept.snapshot() == {1: None, 2: 20, 3: None}


def test_rows_wake_in_order_and_only_once(kept: Kept) -> None:
    kept.put(u1=10, u2=20)
    kept.let_go(u1=5, u2=7)
    assert kept.overflow.first_wake(0) == 5
    assert kept.overflow.wake(0, 4, 10)[1] == 4
    rows, reached_ms = kept.overflow.wake(0, 6, 10)
    assert ([kept.values.values[row] for row in rows], reached_ms) == ([10], 6)
    assert kept.overflow.first_wake(0) == 7
    kept.let_go(u1=9)
    kept.get(1)  # it is here when its time comes
    rows, reached_ms = kept.overflow.wake(0, 20, 1)
    assert ([kept.values.values[row] for row in rows], reached_ms) == ([20], 9)
    assert kept.overflow.wake(0, 20, 1)[0].tolist() == []
    assert kept.overflow.first_wake(0) is None


def test_a_row_with_two_times_comes_back_once(kept: Kept) -> None:
    kept.put(u1=10, u2=20)
    kept.let_go(u1=5)
    kept.get(1)
    kept.let_go(u1=6)
    rows, _ = kept.overflow.wake(0, 10, 10)
    assert len(rows) == 1


def test_a_row_wakes_at_its_start_however_often_it_went_before() -> None:
    with tight_rocksdb() as backend:
        layout = Layout(["user"], SCHEMA, {}, "start")
        table = tracked_table(layout)
        overflow = backend.overflow(table, layout)
        batch = pa.record_batch([pa.array([1, 2, 3], pa.int64())], SCHEMA)
        starts, woken = np.array([5, 7, 9], np.int64), []

        def go() -> None:
            going = np.arange(table.size)
            overflow.make_room(going, {0: table.starts(going)}, NO_ROWS)

        for _ in range(3):  # they come back before their time
            overflow.find_or_add(batch, hash_keys(batch, ["user"]), starts)
            go()
        for until in (5, 9, 9):
            rows, reached_ms = overflow.wake(0, until, 10)
            woken.append(sorted(table.starts(rows).tolist()))
            assert reached_ms == until
            go()  # with those that are awake: they are to wake again
        assert woken == [[5], [5, 7, 9], [5, 7, 9]]
        overflow.close()


class Texts(Kept):
    """A text for each user."""

    def __init__(self, backend: Any) -> None:
        self.values = RowValues(ValueCodec("n", str), Cursor())
        layout = Layout(["user"], SCHEMA, {"state": DeclaredStates({"n": self.values})})
        self.table = tracked_table(layout)
        self.overflow = backend.overflow(self.table, layout)


def test_wide_rows_go_and_come_back_some_at_a_time() -> None:
    """What a batch brings back, or what goes at once, is bytes, columns and values at the same time: of all
    its rows that would be memory beside the bound."""
    sizes: list[int] = []
    real_get, real_put = Database.get, Database.put

    def get(self: Database, ids: Any) -> Any:
        found = real_get(self, ids)
        sizes.append(sum(map(len, filter(None, found))))
        return found

    def put(self: Database, rows: Any) -> None:
        rows = list(rows)
        sizes.append(sum(len(content) for _, content in rows))
        real_put(self, rows)

    watched = Mutant("looks at sizes", [(Database, "get", get), (Database, "put", put)])
    with mutated(watched), tight_rocksdb() as backend:
        kept, users = Texts(backend), list(range(900))
        for row in kept.rows(*users).tolist():
            kept.values.values[row] = "x" * 20_000
        assert kept.overflow.needs_room()
        kept.overflow.make_room(np.arange(900), {}, NO_ROWS)
        assert kept.here() == []
        found: Any = kept.get(*users)
        assert found == ["x" * 20_000] * 900
        kept.overflow.close()
    assert sum(sizes) > 2 * 900 * 20_000
    assert max(sizes) < 3 << 20


def test_what_is_noted_of_changes_takes_room(kept: Kept) -> None:
    """Between two checkpoints it grows with the keys that change and go. Half is for rows in any case."""
    kept.put(u1=10, u2=20, u3=30, u4=40)
    overflow: Any = kept.overflow
    rows_bytes = overflow._sizes.memory_bytes()
    for share, noted, is_full in ((1.5, 0, False), (1.5, 9, True), (1.5, 0.4, False), (3, 9, False)):
        overflow._share = MemoryShare(int(rows_bytes * share))
        overflow._went.nbytes = int(rows_bytes * noted)
        assert overflow.needs_room() == is_full, (share, noted)


def test_a_snapshot_lets_go_of_what_was_in_memory_when_that_is_written(kept: Kept) -> None:
    """What goes to disk meanwhile would be in memory until all is written that was there before."""
    kept.put(u1=10, u2=20, u3=30, u4=40)
    kept.let_go()
    frozen: Any = kept.overflow.freeze(8)
    assert [frozen.piece(n, n + 1).num_rows for n in range(2)] == [1, 1]
    assert frozen._hot is not None
    assert [frozen.piece(n, n + 1).num_rows for n in range(2, len(frozen))] == [1, 1]
    assert frozen._hot is None
