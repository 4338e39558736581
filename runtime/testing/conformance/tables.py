"""What every KeyedTable must do, whatever keeps its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN, FrozenRows, of_key_groups
from onceflow.runtime.state.table import NOT_THERE, Frozen, KeyedTable, Layout, LiveRows

MAX_PARALLELISM = 16
SCHEMA = pa.schema([("amount", pa.int64()), ("name", pa.string()), ("number", pa.int64())])
KEY_COLUMNS = ("name", "number")
Key = tuple[str | None, int | None]
Place = tuple[Key, int]
"""A key and a start."""


class Numbers:
    """A RowColumn in the plainest way: a list, with None where a row is empty."""

    def __init__(self) -> None:
        self.values: list[int | None] = []

    def grow(self, size: int) -> None:
        assert size >= len(self.values), "rows go only by keep"
        self.values.extend([None] * (size - len(self.values)))

    def clear(self, rows: Indices) -> None:
        for row in rows.tolist():
            self.values[row] = None

    def keep(self, rows: Indices) -> None:
        self.values = [self.values[row] for row in rows.tolist()]

    def freeze(self, live: LiveRows) -> Frozen | None:
        values = self.values.copy()
        if all(values[row] is None for row in live.all().tolist()):
            return None
        return lambda rows: pa.array([values[row] for row in rows.tolist()], pa.int64())

    def load(self, rows: Indices, values: pa.Array) -> None:
        for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
            self.values[row] = value


@dataclass(frozen=True)
class TableUnderTest:
    """Makes an empty table. `has_starts`: whether its rows are of a key and a start."""

    create: Callable[[Layout], KeyedTable]
    has_starts: bool = True


class Driven:
    """A table with one column, driven by keys and starts as Python values."""

    def __init__(self, case: TableUnderTest) -> None:
        self.column = Numbers()
        self._has_starts = case.has_starts
        start_column = "start" if case.has_starts else None
        self.table = case.create(Layout(KEY_COLUMNS, SCHEMA, {"value": self.column}, start_column))

    def find(self, places: Sequence[Place], add: bool = False) -> list[int]:
        batch = pa.RecordBatch.from_pylist(
            [{"name": name, "number": number, "amount": 0} for (name, number), _ in places], schema=SCHEMA
        )
        starts = np.array([start for _, start in places], np.int64) if self._has_starts else None
        look = self.table.find_or_add if add else self.table.find
        rows: list[int] = look(batch, hash_keys(batch, KEY_COLUMNS), starts).tolist()
        return rows

    def put(self, places: Sequence[Place], values: Sequence[int]) -> list[int]:
        """Set the value of each place, as an operator does: in order, the last one stays."""
        rows = self.find(places, add=True)
        for row, value in zip(rows, values, strict=True):
            self.column.values[row] = value
        return rows

    def places(self, rows: Iterable[int]) -> list[Place]:
        """What these rows are of."""
        numbers = np.array(list(rows), np.int64)
        keys = [(key["name"], key["number"]) for key in self.table.keys(numbers).to_pylist()]
        return list(zip(keys, self.table.starts(numbers).tolist(), strict=True))

    def content(self) -> dict[Place, int | None]:
        """All that is in it, by way of a snapshot."""
        return content_of(self.table.freeze(MAX_PARALLELISM))

    def due(self, limit: int, count: int) -> list[list[tuple[int, int]]]:
        """The rows that are due, in pieces, with their starts; each is removed."""
        due, pieces = self.table.due(limit), []
        while due is not None and not due.is_through:
            rows, starts = due.take(count)
            assert 0 < len(rows) <= count
            assert (self.table.starts(rows) == starts).all()
            pieces.append(list(zip(rows.tolist(), starts.tolist(), strict=True)))
            self.table.remove(rows)
        return pieces


def pieces_of(frozen: FrozenRows, count: int = 3) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(frozen), count):
        yield frozen.piece(first, min(first + count, len(frozen)))


def content_of(frozen: FrozenRows) -> dict[Place, int | None]:
    """A snapshot's rows; each place is there once, and in the key group of its key."""
    found: dict[Place, int | None] = {}
    for batch in pieces_of(frozen):
        key_hash = hash_keys(pa.RecordBatch.from_struct_array(batch.column("key")), KEY_COLUMNS)
        assert (batch.column(KEY_GROUP_COLUMN).to_numpy() == key_groups_of(key_hash, MAX_PARALLELISM)).all()
        for row in batch.to_pylist():
            place = (row["key"]["name"], row["key"]["number"]), row.get("start", 0)
            assert place not in found, f"{place} is in two rows"
            found[place] = row.get("value")
    return found


def some_places(case: TableUnderTest) -> list[Place]:
    keys: list[Key] = [
        ("a", 1),
        ("a", None),
        (None, 1),
        ("", 0),
        ("ä" * 40, -5),
        *((f"k{n}", n) for n in range(40)),
    ]
    starts = (20, 10, 0) if case.has_starts else (0,)
    return [(key, start) for start in starts for key in keys]


def values_of(places: Sequence[Place]) -> list[int]:
    return list(range(100, 100 + len(places)))


# --- The checks -------------------------------------------------------------------------------------


def rows_are_numbered_in_the_order_in_which_they_come(case: TableUnderTest) -> None:
    driven, places = Driven(case), some_places(case)
    twice = [place for place in places for _ in range(2)]
    assert driven.find(twice, add=True) == [n for n in range(len(places)) for _ in range(2)]
    assert driven.find(places[::-1], add=True) == list(range(len(places)))[::-1]
    assert len(driven.table) == driven.table.size == len(driven.column.values) == len(places)
    assert driven.places(range(len(places))) == places


def looking_adds_nothing(case: TableUnderTest) -> None:
    driven, places = Driven(case), some_places(case)
    assert driven.find(places) == [NOT_THERE] * len(places)
    assert len(driven.table) == 0
    driven.find(places[:5], add=True)
    assert driven.find(places[3:7]) == [3, 4, NOT_THERE, NOT_THERE]
    assert len(driven.table) == 5
    driven.table.remove(np.array([1, 3]))
    assert driven.find(places[:5]) == [0, NOT_THERE, 2, NOT_THERE, 4]


def a_snapshot_has_every_row_once_and_does_not_change(case: TableUnderTest) -> None:
    driven, places = Driven(case), some_places(case)
    driven.put(places, values_of(places))
    frozen = driven.table.freeze(MAX_PARALLELISM)
    more = [((f"more {n}", n), 30 if case.has_starts else 0) for n in range(3_000)]
    driven.put([*places, *more], [0] * (len(places) + len(more)))
    driven.table.remove(np.arange(len(places) - 1))
    driven.table.remove(np.arange(len(places), len(places) + 2_000))
    assert driven.table.compact() is not None
    assert content_of(frozen) == dict(zip(places, values_of(places), strict=True))
    assert len(driven.content()) == 1_001


def what_is_restored_is_what_was_frozen(case: TableUnderTest) -> None:
    """The snapshot is cut by key groups into two tables, and these are put together again."""
    driven, places = Driven(case), some_places(case)
    driven.put(places, values_of(places))
    driven.table.remove(np.arange(0, len(places), 3))
    expected = driven.content()
    frozen = driven.table.freeze(MAX_PARALLELISM)
    groups = [range(5), range(5, MAX_PARALLELISM)]
    parts = [Driven(case) for _ in groups]
    for part, of in zip(parts, groups, strict=True):
        for batch in of_key_groups(pieces_of(frozen), of):
            part.table.load(batch)
    contents = [part.content() for part in parts]
    assert all(contents)
    assert {**contents[0], **contents[1]} == expected
    assert not contents[0].keys() & contents[1].keys()
    whole = Driven(case)
    for part in parts:
        for batch in pieces_of(part.table.freeze(MAX_PARALLELISM)):
            whole.table.load(batch)
    assert whole.content() == expected
    there = list(expected)
    assert sorted(whole.find(there)) == list(range(len(there))), "it goes on with the rows that were restored"


def a_column_with_nothing_in_it_is_left_out_and_comes_back_empty(case: TableUnderTest) -> None:
    driven, places = Driven(case), some_places(case)
    driven.find(places, add=True)
    batches = list(pieces_of(driven.table.freeze(MAX_PARALLELISM)))
    assert all("value" not in batch.schema.names for batch in batches)
    restored = Driven(case)
    restored.put(places[:1], [7])
    for batch in batches[1:]:
        restored.table.load(batch)
    assert restored.content() == {places[0]: 7, **dict.fromkeys(places[3:])}


def what_was_removed_is_gone_and_the_others_keep_what_they_have(case: TableUnderTest) -> None:
    driven, places = Driven(case), some_places(case)
    driven.put(places, values_of(places))
    gone = np.flatnonzero(np.arange(len(places)) % 3 != 1)
    driven.table.remove(gone)
    left = places[1::3]
    expected = dict(zip(left, values_of(places)[1::3], strict=True))
    assert driven.content() == expected
    kept = driven.table.compact()
    assert kept is not None, "two of three rows were removed"
    assert kept.tolist() == list(range(1, len(places), 3))
    assert driven.table.size == len(driven.table) == len(driven.column.values) == len(left)
    assert driven.places(range(len(left))) == left
    assert driven.find(left) == list(range(len(left)))
    back = driven.put(places[:1], [5])
    assert back == [len(left)], "what was removed may come back after compact, and is new then"
    assert driven.content() == {**expected, places[0]: 5}


def a_row_that_is_reset_stays_and_is_empty(case: TableUnderTest) -> None:
    driven, places = Driven(case), some_places(case)
    driven.put(places, values_of(places))
    driven.table.reset(np.array([2, 5]))
    assert driven.find([places[2], places[5]], add=True) == [2, 5]
    content = driven.content()
    assert [content[places[n]] for n in (1, 2, 5, 6)] == [101, None, None, 106]


def numbers_beside_the_columns_are_in_the_snapshot(case: TableUnderTest) -> None:
    driven, places = Driven(case), some_places(case)
    driven.put(places, values_of(places))
    driven.table.remove(np.array([0]))
    beside: dict[str, Int64s] = {"fired_ms": np.arange(len(places)) * 10}
    rows: list[Any] = [
        row for b in pieces_of(driven.table.freeze(MAX_PARALLELISM, beside)) for row in b.to_pylist()
    ]
    assert [row["fired_ms"] for row in rows] == [(row["value"] - 100) * 10 for row in rows]


def rows_are_due_by_their_start_in_the_order_in_which_they_came(case: TableUnderTest) -> None:
    driven, places = Driven(case), some_places(case)
    assert driven.table.due(1 << 60) is None
    if not case.has_starts:
        return
    driven.put(places, values_of(places))
    assert driven.due(-1, 10) == []
    pieces = driven.due(10, 7)
    assert all(len(piece) == 7 for piece in pieces[:-1])
    rows = [row for piece in pieces for row, _ in piece]
    number = {place: n for n, place in enumerate(places)}
    expected = sorted((place for place in places if place[1] <= 10), key=lambda place: place[1])
    assert rows == [number[place] for place in expected]
    assert set(driven.content()) == {place for place in places if place[1] == 20}
    assert driven.due(19, 10) == []
    driven.table.compact()
    assert [len(piece) for piece in driven.due(20, 1_000)] == [len(places) // 3]
    assert driven.content() == {}
    assert driven.table.due(1 << 60) is None


def rows_that_were_restored_are_due(case: TableUnderTest) -> None:
    if not case.has_starts:
        return
    driven, places = Driven(case), some_places(case)
    driven.put(places, values_of(places))
    restored = Driven(case)
    for batch in pieces_of(driven.table.freeze(MAX_PARALLELISM)):
        restored.table.load(batch)
    found = restored.places(row for piece in restored.due(0, 100) for row, _ in piece)
    assert sorted(found, key=repr) == sorted((place for place in places if place[1] == 0), key=repr)


TABLE_CHECKS: Sequence[Callable[[TableUnderTest], None]] = (
    rows_are_numbered_in_the_order_in_which_they_come,
    looking_adds_nothing,
    a_snapshot_has_every_row_once_and_does_not_change,
    what_is_restored_is_what_was_frozen,
    a_column_with_nothing_in_it_is_left_out_and_comes_back_empty,
    what_was_removed_is_gone_and_the_others_keep_what_they_have,
    a_row_that_is_reset_stays_and_is_empty,
    numbers_beside_the_columns_are_in_the_snapshot,
    rows_are_due_by_their_start_in_the_order_in_which_they_came,
    rows_that_were_restored_are_due,
)
