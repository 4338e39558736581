"""The last row of each key, also where rows are dropped on the way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.connectors.versioned_upserts.last_rows import LastRows
from onceflow.runtime.records import RowKind

NEW, BEFORE, AFTER, GONE = RowKind


def batch(*rows: tuple[Any, int, RowKind]) -> pa.RecordBatch:
    keys, values, kinds = zip(*rows, strict=True)
    arrays = [
        pa.array(keys, pa.string()),
        pa.array(values),
        pa.array([int(kind) for kind in kinds], pa.int8()),
    ]
    return pa.record_batch(arrays, names=["k", "v", KIND])


def last(rows: LastRows) -> dict[str, int | None]:
    """Give the value that stays of each key; None: it is deleted."""
    found = {}
    for piece in rows.pieces():
        assert piece.rows.schema.names == ["k", "v"]
        for key, gone, row in zip(piece.keys, piece.is_gone, piece.rows.to_pylist(), strict=True):
            assert key not in found
            found[key] = None if gone else row["v"]
    return found


def test_the_last_row_of_a_key_stays_and_one_that_was_before_is_a_delete() -> None:
    rows = [
        batch(("a", 1, NEW), ("b", 2, NEW), ("a", 3, NEW), ("c", 4, NEW)),
        batch(("b", 2, BEFORE), ("b", 5, AFTER), ("c", 4, BEFORE), ("d", 4, AFTER)),
        batch(("d", 4, GONE), ("e", 6, GONE), ("e", 7, NEW)),
    ]
    assert last(LastRows(["k"], rows)) == {"a": 3, "b": 5, "c": None, "d": None, "e": 7}


def test_of_many_rows_of_few_keys_few_are_kept_on_the_way() -> None:
    batches = [batch(*((str(n % 7), n, NEW) for n in range(k, k + 100))) for k in range(0, 2_000, 100)]
    seen = []

    def given() -> Iterator[pa.RecordBatch]:
        for each in batches:
            seen.append(sys.getrefcount(batches[0]))
            yield each

    held = LastRows(["k"], given(), compact_bytes=3 * batches[0].nbytes)
    assert last(held) == {str(n % 7): n for n in range(1_993, 2_000)}
    assert seen[-1] <= seen[0], "the first batch is not held any more"


def test_nothing_comes_of_nothing() -> None:
    assert list(LastRows(["k"], []).pieces()) == []


def test_a_row_with_a_null_in_its_key_is_told_apart() -> None:
    held = LastRows(["k"], [batch((None, 1, NEW), ("a", 2, NEW)), batch((None, 3, NEW))])
    assert last(held) == {"a": 2}
    assert [(each.keys, each.rows.to_pylist()) for each in held.without_key()] == [
        (["null (0)"], [{"k": None, "v": 1}]),
        (["null (1)"], [{"k": None, "v": 3}]),
    ]


@pytest.mark.parametrize("key", [["k", "v"], ["v", "k"]])
def test_a_key_of_several_columns(key: list[str]) -> None:
    held = LastRows(key, [batch(("a", 1, NEW), ("a", 2, NEW), ("a", 1, GONE))])
    assert sum(map(len, (piece.keys for piece in held.pieces()))) == 2


def test_many_small_batches_are_few_pieces() -> None:
    """A request for each batch of a slow stream would take longer than the stream."""
    held = LastRows(["k"], [batch((str(n), n, NEW)) for n in range(1_000)])
    (piece,) = held.pieces()
    assert piece.keys == [str(n) for n in range(1_000)]
    assert piece.rows.column("v").to_pylist() == list(range(1_000))
