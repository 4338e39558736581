"""Rows by their keys are those that a dictionary of them has, in their order; missing keys have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.runtime.errors import UsageError
from onceflow.runtime.records import UInt64s
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state_tables import chosen_keys, indexed_rows
from onceflow.runtime.state_tables.indexed_rows import IndexedRows
from onceflow.runtime.testing.mutation import Mutant, mutated

KEYS = pa.schema([("user", pa.string()), ("day", pa.int32())])
ROWS = pa.schema([*KEYS, ("position", pa.int64())])
Key = tuple[str | None, int | None]
keys = st.tuples(st.none() | st.sampled_from(["", "a", "b", "ä"]), st.none() | st.integers(-2, 2))


def check(given_keys: list[Key], wanted: list[Key], pieces: int) -> None:
    rows = [{"user": user, "day": day, "position": n} for n, (user, day) in enumerate(given_keys)]
    table = pa.concat_tables(
        [pa.Table.from_pylist(rows[n::pieces], ROWS) for n in range(pieces)]
    )  # chunks, some of them empty
    model: dict[Key, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        model.setdefault((row["user"], row["day"]), []).append(row)
    places, found = IndexedRows(table, KEYS, "it").find([{"user": u, "day": d} for u, d in wanted])
    expected = [(n, row) for n, key in enumerate(wanted) for row in model.get(key, [])]
    assert list(zip(places.tolist(), found.to_pylist(), strict=True)) == expected


@given(st.lists(keys, max_size=30), st.lists(keys, max_size=8), st.integers(1, 3))
@example([("a", 1), ("b", 1), ("a", 1)], [("b", 1), ("a", 1), ("a", 2), ("b", 1)], 2)
def test_a_dictionary_has_the_same_rows(given_keys: list[Key], wanted: list[Key], pieces: int) -> None:
    check(given_keys, wanted, pieces)


def one_hash(batch: pa.RecordBatch, names: Sequence[str], seed: int = 0) -> UInt64s:
    """All keys have one first hash, in the table and in the question."""
    return hash_keys(batch, names, seed) if seed else np.zeros(batch.num_rows, np.uint64)


def one_of_each(batch: pa.RecordBatch, names: Sequence[str], seed: int = 0) -> UInt64s:
    return np.zeros(batch.num_rows, np.uint64)


def same_hashes(hashes: Any) -> Mutant:
    return Mutant(
        "keys share hashes", [(module, "hash_keys", hashes) for module in (indexed_rows, chosen_keys)]
    )


COLLIDING: list[Key] = [("a", 1), ("b", 1), ("a", 2), ("a", 1)]


@given(st.lists(keys, max_size=12), st.lists(keys, max_size=5))
@example(COLLIDING, [("a", 1), ("c", 1)])
def test_keys_that_share_a_hash_are_told_apart_by_the_second(
    given_keys: list[Key], wanted: list[Key]
) -> None:
    with mutated(same_hashes(one_hash)):
        check(given_keys, wanted, 1)


def test_without_the_second_hash_they_would_not_be() -> None:
    with mutated(same_hashes(one_of_each)), pytest.raises(AssertionError):
        check(COLLIDING, [("a", 1), ("c", 1)], 1)


def test_what_is_no_key_is_told() -> None:
    index = IndexedRows(pa.Table.from_pylist([], ROWS), KEYS, "it")
    assert index.num_rows == 0
    with pytest.raises(UsageError, match="a key of it has the columns user, day"):
        index.find(["a"])
