"""Rows by their keys are those that a dictionary of them has, in their order; missing keys have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.runtime.errors import UsageError
from onceflow.runtime.state_tables import indexed_rows
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


def test_keys_that_share_a_hash_are_told_apart() -> None:
    """All keys have one hash here: only the second tells them apart, and without it the test notices."""
    original = indexed_rows._hashes
    one = lambda b, n, seed: original(b, n, seed) if seed else np.zeros_like(original(b, n, 0))  # noqa: E731
    with mutated(Mutant("one hash", [(indexed_rows, "_hashes", one)])), pytest.raises(AssertionError):
        check([("a", 1), ("b", 1)], [("a", 1)], 1)


def test_what_is_no_key_is_told() -> None:
    index = IndexedRows(pa.Table.from_pylist([], ROWS), KEYS, "it")
    assert index.num_rows == 0
    with pytest.raises(UsageError, match="a key of it has the columns user, day"):
        index.find(["a"])
