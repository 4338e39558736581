"""Rows that go to one of several outputs, against a list: any batches, conditions and nulls."""

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.splitting import FirstThatHolds, SplitRows
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated

SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
CONDITIONS = {
    "high": (pl.col("amount") > 2, lambda amount: amount is not None and amount > 2),
    "even": (pl.col("amount") % 2 == 0, lambda amount: amount is not None and amount % 2 == 0),
    "none": (pl.col("amount").is_null(), lambda amount: amount is None),
    "never": (pl.lit(False), lambda amount: False),
    "always": (pl.lit(True), lambda amount: True),
}
NAMES = st.lists(st.sampled_from([*CONDITIONS]), min_size=1, max_size=4, unique=True)
BATCHES = st.lists(st.lists(st.none() | st.integers(0, 4), max_size=6), max_size=4)


def check(batches: list[list[int | None]], names: list[str], default: str | None) -> None:
    choice = FirstThatHolds([CONDITIONS[name][0] for name in names])
    harness = OperatorHarness(lambda: SplitRows(choice, [*names, default]), ["id"])
    expected: list[Any] = []
    for number, amounts in enumerate(batches):
        rows = [{"id": 10 * number + n, "amount": amount} for n, amount in enumerate(amounts)]
        harness.push(pa.RecordBatch.from_pylist(rows, SCHEMA), [row["id"] for row in rows])
        for row in rows:
            tag = next((name for name in names if CONDITIONS[name][1](row["amount"])), default)
            if tag is not None:
                expected.append((tag, row["id"], row["amount"], row["id"]))
    found = []
    for tag, records in harness.out.emitted:
        assert records.event_time is not None
        for row, time in zip(records.batch.to_pylist(), records.event_time.tolist(), strict=True):
            found.append((tag, *row.values(), time))
    for tag in {*names, default}:
        assert [row for row in found if row[0] == tag] == [row for row in expected if row[0] == tag]


@settings(max_examples=150, deadline=None)
@given(batches=BATCHES, names=NAMES, default=st.sampled_from([None, "others"]))
@example([[4, 3, 1, None]], ["high", "even"], "others")
def test_each_row_goes_to_the_first_that_holds(batches: Any, names: Any, default: str | None) -> None:
    check(batches, names, default)


def each_that_holds(self: SplitRows, records: Any) -> None:
    """A row goes to each output whose condition is true."""
    for name, tag in zip(CONDITIONS, self._tags, strict=False):
        only = FirstThatHolds([CONDITIONS[name][0]])
        self._out.emit(records.filter(only.of(records) == 0), tag)


def test_a_row_in_two_streams_is_found() -> None:
    mutant = Mutant("a row goes to all", [(SplitRows, "on_records", each_that_holds)])
    with mutated(mutant), pytest.raises(AssertionError):
        check([[4]], ["high", "even"], None)
