"""Sums of decimals against Python's: exact up to the last of 38 digits, or an error; never another number."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Fatal
from onceflow.runtime.kernels.ops import Ops, ops_here, using
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow, valid_arrivals
from onceflow.runtime.operators.aggregation.aggregates import sum_
from onceflow.runtime.operators.aggregation.sums import DecimalSum
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.table import LiveRows
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import tight_rocksdb

EXACT = Context(prec=60)
MOST = 10**38 - 1
EDGES = [0, 1, -1, 2**32, 2**64 - 1, -(2**64), 2**96, -(2**96) - 1, 2**126, MOST, -MOST, MOST // 2]
WHOLE = st.integers(-MOST, MOST) | st.sampled_from(EDGES) | st.integers(-999, 999)
BATCHES = st.lists(st.lists(st.none() | WHOLE, min_size=1, max_size=6), min_size=1, max_size=6)


def decimals(whole: list[int | None], scale: int, precision: int = 38) -> pa.Array:
    values = [None if n is None else Decimal(n).scaleb(-scale, EXACT) for n in whole]
    return pa.array(values, pa.decimal128(precision, scale))


def total_of(whole: list[int | None], scale: int) -> Decimal | None:
    there = [n for n in whole if n is not None]
    return Decimal(sum(there)).scaleb(-scale, EXACT) if there else None


@settings(max_examples=200, deadline=None)
@given(
    batches=BATCHES,
    scale=st.integers(0, 38),
    restored_after=st.integers(0, 6),
    ops=st.sampled_from(ops_here()),
)
@example(batches=[[MOST, 1, -1], [-MOST, -MOST]], scale=2, restored_after=0, ops=ops_here()[0])
@example(batches=[[-MOST, 5], [-6]], scale=0, restored_after=9, ops=ops_here()[0])
def test_a_sum_is_exact_or_an_error(
    batches: list[list[int | None]], scale: int, restored_after: int, ops: Ops
) -> None:
    with using(ops):
        check_sums(batches, scale, restored_after)


def check_sums(batches: list[list[int | None]], scale: int, restored_after: int) -> None:
    seen: list[int | None] = []
    sums, rows = DecimalSum(scale), np.arange(2)
    sums.grow(2)  # the first stays empty
    for n, batch in enumerate(batches):
        seen += batch
        at = np.ones(len(batch), np.int64)
        arrivals = valid_arrivals(at, decimals(batch, scale), at)
        if abs(sum(w for w in seen if w is not None)) > MOST:
            with pytest.raises(SumOverflow, match="does not fit 38 digits") as error:
                sums.update(arrivals)
            assert f"the sum {total_of(seen, scale)} does not" in str(error.value)
            assert error.value.row == 1
            return
        sums.update(arrivals)
        if n == restored_after:
            kept = sums.freeze(LiveRows(2))(rows)
            assert kept.type == pa.decimal128(38, scale)
            sums = DecimalSum(scale)
            sums.grow(2)
            sums.load(rows, kept)
    results = sums.results(rows)
    results.validate(full=True)
    assert results.to_pylist() == [None, total_of(seen, scale)]


def wrapping(self: DecimalSum, arrivals: object) -> None:
    """Adds the lower words only, as a sum that may wrap around."""
    rows, values = arrivals.rows, arrivals.values  # type: ignore[attr-defined]
    for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
        whole = int(value.scaleb(self._type.scale, EXACT))
        self._sums.values["low"][row] += np.uint64(whole % 2**64)
    self._sums.mark(rows)


def test_a_sum_that_wraps_around_is_found() -> None:
    mutant = Mutant("sums of decimals wrap around", [(DecimalSum, "update", wrapping)])
    with mutated(mutant), np.errstate(over="ignore"), pytest.raises(AssertionError):
        check_sums([[2**64 - 1], [1]], 0, 0)


SCHEMA = pa.schema([("user", pa.string()), ("price", pa.decimal128(12, 2))])
WINDOWS = [Tumbling(10), Sliding(10, 5), Session(5), CountWindow(3)]


def as_batch(rows: list[tuple[str, int | None]]) -> pa.RecordBatch:
    users = pa.array([user for user, _ in rows], pa.string())
    return pa.RecordBatch.from_arrays([users, decimals([n for _, n in rows], 2, 12)], schema=SCHEMA)


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: type(window).__name__)
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_all_windows_sum_decimals_and_go_on_after_a_restore(window: Window, backend: str) -> None:
    if backend == "heap":
        check_windows(window, UNLIMITED)
    else:
        with tight_rocksdb(rows_in_memory=1) as state:
            check_windows(window, state)


def check_windows(window: Window, state: StateBackend) -> None:
    configured = WindowAggregate("w", ("user",), window, {"total": sum_("price")}, SCHEMA)
    assert configured.output_schema.field("total").type == pa.decimal128(38, 2)
    before = OperatorHarness(configured.create, ["user"], 2, state=state)
    before.push(as_batch([("a", 1_000_000_000_01), ("b", None), ("a", 25), ("c", -7)]), [6, 6, 7, 8])
    after = OperatorHarness(configured.create, ["user"], 3, states=before.snapshot(), state=state)
    after.push(
        as_batch([("a", 9_999_999_999_99), ("b", None), ("c", 3), ("b", None), ("c", 1)]), [8, 9, 6, 9, 6]
    )
    after.finish()
    rows = [row for row in after.rows() if row.get("window_start", 0) >= 0]
    before.close()
    after.close()
    totals = {(row["user"], row["total"]) for row in rows}
    assert totals == {("a", Decimal("10999999998.25") + 2), ("b", None), ("c", Decimal("-0.03"))}


def test_a_sum_of_more_than_38_digits_names_its_column_key_and_window() -> None:
    schema = pa.schema([("user", pa.string()), ("price", pa.decimal128(38, 2))])
    most = decimals([MOST], 2)
    for window, message in (
        (Tumbling(10), r"user='rich' in the window \[0, 10\)"),
        (Sliding(10, 5), r"user='rich'"),
        (Session(5), r"user='rich' in the window \[1, 6\)"),
        (CountWindow(3), r"user='rich'"),
    ):
        configured = WindowAggregate("w", ("user",), window, {"total": sum_("price")}, schema)
        harness = OperatorHarness(configured.create, ["user"])
        rich = pa.RecordBatch.from_arrays([pa.array(["rich"]), most], schema=schema)
        harness.push(rich, [1])
        with pytest.raises(Fatal, match=f"column 'total': the sum 1999.* not fit 38 digits .*{message}"):
            harness.push(rich, [1])
