"""Rows of two runs side by side, against counters and dictionaries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.cli import compared_rows
from onceflow.cli.compared_rows import compared
from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.runtime.testing.mutation import Mutant, mutated

SCHEMA = {"user": pl.String, "n": pl.Int64, KIND: pl.Int8}
Rows = list[tuple[str | None, int | None, int]]
ROWS: Any = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]), st.integers(0, 3)), max_size=8
)
TAKEN_BACK: Rows = [
    ("a", 1, 0),
    ("b", 1, 0),
    ("b", 1, 0),
    ("a", 1, 1),
    ("a", 2, 2),
    (None, 1, 0),
    ("b", 1, 3),
]
OTHERS: Rows = [("a", 1, 0), ("b", 1, 0), (None, None, 0), ("a", 1, 3)]


def frame(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame(rows, SCHEMA, orient="row")


def counted(rows: Rows) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for user, n, kind in rows:
        counts[user, n] += -1 if kind in (1, 3) else 1
    return counts


def last(rows: Rows) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for user, n, kind in rows:
        found[user] = None if kind in (1, 3) else (user, n)
    return {user: row for user, row in found.items() if row is not None}


@settings(max_examples=100, deadline=None)
@given(ROWS, ROWS)
@example(TAKEN_BACK, OTHERS)
def test_without_a_key_each_row_counts(before: Rows, after: Rows) -> None:
    found = compared(frame(before), frame(after), (), (), 100)
    was, now = counted(before), counted(after)
    assert found.only_before == sum(max(0, was[row] - now[row]) for row in {*was, *now})
    assert found.only_after == sum(max(0, now[row] - was[row]) for row in {*was, *now})
    assert found.same == sum(max(0, min(was[row], now[row])) for row in {*was, *now})
    assert found.changed == 0
    minus = [(row["user"], row["n"]) for row in found.examples if row["change"] == "-"]
    assert Counter(minus) == Counter({r: was[r] - now[r] for r in {*was, *now} if was[r] > now[r]})


@settings(max_examples=100, deadline=None)
@given(ROWS, ROWS)
@example(TAKEN_BACK, OTHERS)
def test_with_a_key_the_last_row_of_each_counts(before: Rows, after: Rows) -> None:
    found = compared(frame(before), frame(after), ("user",), (), 100)
    was, now = last(before), last(after)
    assert (found.only_before, found.only_after) == (len(was.keys() - now), len(now.keys() - was))
    both = was.keys() & now.keys()
    assert found.changed == sum(was[user] != now[user] for user in both)
    assert found.same == sum(was[user] == now[user] for user in both)
    changed = [(row["user"], row["n"]) for row in found.examples if row["change"] == "after"]
    assert sorted(changed, key=str) == sorted((now[u] for u in both if was[u] != now[u]), key=str)


@pytest.mark.parametrize("gone", [(), (3,), (1,)])
def test_kinds_that_are_forgotten_are_found(gone: Any) -> None:
    with mutated(Mutant("kinds", [(compared_rows, "_GONE", gone)])), pytest.raises(AssertionError):
        test_without_a_key_each_row_counts.hypothesis.inner_test(TAKEN_BACK, OTHERS)  # type: ignore[attr-defined]


def test_columns_of_one_side_are_told_and_others_are_held_against_each_other() -> None:
    before = pl.DataFrame({"user": ["a", "b"], "n": [1, 2], "tags": [["x"], []], "old": [1, 1], "at": [5, 6]})
    after = pl.DataFrame(
        {"user": ["a", "b"], "n": [1.0, 2.5], "tags": [["x"], []], "new": [1, 1], "at": [7, 8]}
    )
    found = compared(before, after, ("user",), ("at",), 5)
    assert (found.columns_before, found.columns_after) == (["old"], ["new"])
    assert (found.same, found.changed) == (1, 1)
    assert found.differ
    same = compared(before, before.with_columns(at=0), ("user",), ("at",), 5)
    assert (same.same, same.differ) == (2, False)
