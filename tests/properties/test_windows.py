"""Windows against a naive list: any batches, watermarks, snapshots and restores at another parallelism.

Each start of the operator, also from a snapshot, is with kernels or without.
"""

import math
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Fatal
from onceflow.runtime.kernels.ops import PLAIN, Ops, ops_here, using
from onceflow.runtime.operators.aggregation.aggregates import count, first, last, max_, mean, min_, sum_
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of, subtask_of_key_group
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.rocks.rocks_units import RocksUnits
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("region", pa.int32()),
        ("amount", pa.int64()),
        ("price", pa.float64()),
        ("note", pa.string()),
    ]
)
LARGE = 10**20 + 7
"""An amount as often needs all the words of a decimal."""
AGGREGATES = {
    "n": count(),
    "amounts": count("amount"),
    "total": sum_("amount"),
    "large": sum_(pl.col("amount").cast(pl.Decimal(38, 0)) * LARGE),
    "low": min_("amount"),
    "high": max_("price"),
    "mean": mean("amount"),
    "first": first("note"),
    "last": last("note"),
    "least": min_("note"),
}

USERS = st.sampled_from(["", "a", "b", "ä", "\U0001f600", "a\x00", None])
ROW = st.tuples(
    st.integers(-40, 60),  # event time
    USERS,
    st.sampled_from([None, 0, 1, -1]),
    st.none() | st.integers(-(1 << 40), 1 << 40),
    st.none() | st.floats(allow_nan=False, width=32),
    st.none() | st.text(max_size=3),
)
STEP = st.one_of(
    st.tuples(st.just("rows"), st.lists(ROW, max_size=12)),
    st.tuples(st.just("watermark"), st.integers(-50, 70)),
    st.tuples(st.just("watermark of one"), st.integers(-50, 70)),
    st.tuples(st.just("restore"), st.tuples(st.sampled_from([1, 2, 3, 4]), st.sampled_from(ops_here()))),
)
TUMBLING = st.builds(
    lambda size, offset: Tumbling(size, offset % size), st.integers(1, 30), st.integers(0, 30)
)
SLIDING = st.builds(
    lambda slide, more, offset: Sliding(slide + more, slide, offset % slide),
    st.integers(1, 12),
    st.integers(0, 25),
    st.integers(0, 12),
)


class NaiveWindows:
    """A list of rows, each with the end of a window that has not fired. `fired_ms` is how far event time
    was, by key: what a restart must not forget."""

    def __init__(self, window: Tumbling | Sliding) -> None:
        self.window = window
        self.rows: list[tuple[int, tuple[Any, ...]]] = []
        self.results: list[tuple[Any, ...]] = []
        self.late: list[tuple[Any, ...]] = []

    def push(self, rows: list[tuple[Any, ...]], fired_ms: Any) -> None:
        for row in rows:
            windows = [(end, row) for end in self.ends(row) if end - 1 > fired_ms(row)]
            self.rows += windows
            if not windows:
                self.late.append(row)

    def fire(self, fired_ms: Any) -> None:
        due = [(end, row) for end, row in self.rows if end - 1 <= fired_ms(row)]
        self.rows = [(end, row) for end, row in self.rows if end - 1 > fired_ms(row)]
        for group in sorted({(end, repr(row[1:3])) for end, row in due}):
            mine = [row for end, row in due if (end, repr(row[1:3])) == group]
            self.results.append(self.result(group[0], mine))

    def result(self, end: int, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        amounts = [row[3] for row in rows if row[3] is not None]
        prices = [row[4] for row in rows if row[4] is not None]
        noted = [row for row in rows if row[5] is not None]
        latest = max((row[0] for row in noted), default=0)
        return (
            *rows[0][1:3], end - self.window.size_ms, end,
            len(rows), len(amounts), sum(amounts) if amounts else None,
            LARGE * sum(amounts) if amounts else None,
            min(amounts, default=None), max(prices, default=None),
            float(Fraction(sum(amounts), len(amounts))) if amounts else None,
            min(noted, key=lambda row: row[0])[5] if noted else None,
            [row for row in noted if row[0] == latest][-1][5] if noted else None,
            min((row[5] for row in noted), default=None),
        )  # fmt: skip

    def ends(self, row: tuple[Any, ...]) -> list[int]:
        """The ends of all windows that hold the row: every time that is one and fits is tried."""
        size, offset = self.window.size_ms, self.window.offset_ms
        slide = self.window.slide_ms if isinstance(self.window, Sliding) else size
        return [end for end in range(row[0] + 1, row[0] + size + 1) if (end - size - offset) % slide == 0]


class Run:
    """The real operator, and for each key how far event time was where its state lives."""

    def __init__(self, configured: WindowAggregate, stack: ExitStack, state: StateBackend) -> None:
        """`stack`: until it is closed, ops are those of the last restore, and harnesses are open."""
        self.configured = configured
        self.stack = stack
        self.state = state
        self.harness = self.opened(2)
        self.results: list[dict[str, Any]] = []
        self.late: list[dict[str, Any]] = []
        self.late_rows = 0
        self.floor: dict[int, int] = {}
        self.watermarks = [-(1 << 63)] * 2

    def opened(self, parallelism: int, states: Any = None) -> OperatorHarness:
        keys = ["user", "region"]
        made = OperatorHarness(self.configured.create, keys, parallelism, states=states, state=self.state)
        self.stack.callback(made.close)
        return made

    def collect(self) -> None:
        self.results += self.harness.rows()
        self.late += self.harness.rows("late")
        self.late_rows += self.harness.late_rows
        self.harness.out.emitted.clear()
        self.harness.late_rows = 0

    def fired_ms(self, row: tuple[Any, ...]) -> int:
        """The model's floors, by key group; computed from scratch for each row."""
        key = pa.RecordBatch.from_pylist(
            [{"user": row[1], "region": row[2]}], pa.schema([SCHEMA.field(0), SCHEMA.field(1)])
        )
        group = int(key_groups_of(hash_keys(key, ["user", "region"]), 128)[0])
        subtask = subtask_of_key_group(128, len(self.watermarks), group)
        return max(self.floor.get(group, -(1 << 63)), self.watermarks[subtask])

    def restore(self, parallelism: int, chosen: Ops) -> None:
        for group in range(128):
            subtask = subtask_of_key_group(128, len(self.watermarks), group)
            self.floor[group] = max(self.floor.get(group, -(1 << 63)), self.watermarks[subtask])
        states = self.harness.snapshot()
        # What happens after the snapshot is lost in the crash.
        self.harness.push(as_batch([(1, "a", 1, 5, 5.0, "lost"), (50, "b", 0, 5, 5.0, "lost")]), [1, 50])
        self.harness.finish()
        self.stack.enter_context(using(chosen))
        self.harness = self.opened(parallelism, states)
        self.watermarks = [-(1 << 63)] * parallelism


def as_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row[1:], strict=True)) for row in rows], SCHEMA)


def sort_key(row: tuple[Any, ...]) -> str:
    return repr(row)


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(STEP, max_size=14), window=TUMBLING | SLIDING)
def test_windows_agree_with_a_naive_list(steps, window):
    with using(PLAIN), ExitStack() as stack:
        check_run(steps, window, stack, UNLIMITED)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEP, max_size=14), window=TUMBLING)
def test_windows_whose_snapshots_build_on_each_other_agree_with_a_naive_list(steps, window):
    with using(PLAIN), ExitStack() as stack:
        check_run(steps, window, stack, INCREMENTAL)


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(STEP, max_size=14), window=TUMBLING)
def test_windows_in_rocksdb_agree_with_a_naive_list(steps, window):
    with using(PLAIN), tight_rocksdb() as state, ExitStack() as stack:
        check_run(steps, window, stack, state)


def not_woken(self, kind, rows, times):
    """A window that goes to disk does not say when it starts."""


def test_a_window_on_disk_that_does_not_come_back_is_found():
    mutant = Mutant("windows on disk don't fire", [(RocksUnits, "_put_wakes", not_woken)])
    steps = [("rows", [(n, user, n, n, 0.5, None) for n, user in enumerate("abab")])]
    with mutated(mutant), tight_rocksdb() as state, ExitStack() as stack, pytest.raises(AssertionError):
        check_run(steps, Tumbling(10), stack, state)


def check_run(steps, window, stack, state):
    configured = WindowAggregate("w", ("user", "region"), window, AGGREGATES, SCHEMA, late=True)
    run, naive = Run(configured, stack, state), NaiveWindows(window)
    for kind, value in [*steps, ("watermark", (1 << 63) - 1)]:
        if kind == "rows":
            naive.push(value, run.fired_ms)
            run.harness.push(as_batch(value), [row[0] for row in value])
        elif kind == "restore":
            run.collect()
            run.restore(*value)
        else:
            chosen = range(len(run.watermarks)) if kind == "watermark" else [value % len(run.watermarks)]
            for subtask in chosen:
                run.watermarks[subtask] = max(run.watermarks[subtask], value)
                run.harness.advance(run.watermarks[subtask], subtask)
            naive.fire(run.fired_ms)
        run.collect()
    got = [tuple(row.values()) for row in run.results]
    assert sorted(got, key=sort_key) == sorted(naive.results, key=sort_key)
    late = [tuple(row.values()) for row in run.late]
    assert sorted(late, key=sort_key) == sorted((row[1:] for row in naive.late), key=sort_key)
    assert run.late_rows == len(naive.late)


@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=6), max_size=6),
    restore_after=st.integers(0, 5),
)
def test_integer_sums_are_exact_or_an_error(batches, restore_after):
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    aggregates = {"total": sum_("v"), "mean": mean("v")}
    configured = WindowAggregate("w", ("k",), Tumbling(10), aggregates, schema)
    harness = OperatorHarness(configured.create, ["k"])
    values: list[int] = []
    for i, batch in enumerate(batches):
        values += batch
        rows = pa.RecordBatch.from_pylist([{"k": 1, "v": v} for v in batch], schema)
        fits = -(1 << 63) <= sum(values) < 1 << 63
        if not fits:
            with pytest.raises(Fatal, match=str(sum(values))):
                harness.push(rows, [0] * len(batch))
            return
        harness.push(rows, [0] * len(batch))
        if i == restore_after:
            harness = OperatorHarness(configured.create, ["k"], states=harness.snapshot())
    harness.finish()
    for row in harness.rows():
        assert row["total"] == sum(values)
        assert math.isclose(
            row["mean"], float(Fraction(sum(values), len(values))), rel_tol=1e-15, abs_tol=1e-6
        )
