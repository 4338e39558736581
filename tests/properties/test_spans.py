"""Sessions, and windows with allowed lateness, against naive lists of rows.

Any batches, watermarks that fire in pieces, snapshots in the middle of that, restores at another parallelism,
with kernels or without.
"""

from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.kernels.ops import PLAIN, ops_here, using
from onceflow.runtime.operators.aggregation.aggregates import (
    AggregateFunction,
    count,
    first,
    last,
    max_,
    mean,
    sum_,
)
from onceflow.runtime.operators.assigners.cumulative import Cumulative
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.assigners.own_gaps import OwnGap
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.windows import span_rows
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.spans import join_equal
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import RowKind
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.heap.heap_groups import HeapGroups
from onceflow.runtime.state.key_groups import key_groups_of, subtask_of_key_group
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.rocks.rocks_units import RocksUnits
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.record_types import record_class
from onceflow.runtime.types.records_of_columns import RecordReader

SCHEMA = pa.schema(
    [("user", pa.string()), ("amount", pa.int64()), ("gap", pa.int64()), ("note", pa.string())]
)
MIN_MS, MAX_MS = -(1 << 63), (1 << 63) - 1


class Longest(AggregateFunction[Any, int, int]):
    """The longest note."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return max(accumulator, len(value.note or ""))

    def merge(self, accumulator_a: int, accumulator_b: int) -> int:
        return max(accumulator_a, accumulator_b)

    def get_result(self, accumulator: int) -> int:
        return accumulator


LARGE = 10**20 + 7
"""An amount as often needs all the words of a decimal."""

AGGREGATES = {
    "n": count(),
    "total": sum_("amount"),
    "large": sum_(pl.col("amount").cast(pl.Decimal(38, 0)) * LARGE),
    "high": max_("amount"),
    "mean": mean("amount"),
    "first": first("note"),
    "last": last("note"),
    "longest": Longest(),
}

ROW = st.tuples(
    st.integers(-40, 60),  # event time
    st.sampled_from(["a", "b", "ä", None]),
    st.none() | st.integers(-(1 << 40), 1 << 40),
    st.integers(1, 20),
    st.none() | st.text("xyz", max_size=3),
)
STEP = st.one_of(
    st.tuples(st.just("rows"), st.lists(ROW, max_size=8)),
    st.tuples(st.just("rows"), st.lists(ROW, max_size=8)),
    st.tuples(st.just("watermark"), st.integers(-50, 90)),
    st.tuples(st.just("watermark of one"), st.integers(-50, 90)),
    st.tuples(st.just("begin"), st.tuples(st.integers(-50, 90), st.integers(0, 3))),
    st.tuples(st.just("restore"), st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from(ops_here()))),
)
OWN_GAP = Session(0, OwnGap(lambda row: row.gap, RecordReader(record_class(SCHEMA))))
SESSIONS = st.builds(Session, st.integers(1, 25)) | st.sampled_from(
    [Session(0, "gap"), Session(0, pl.col("gap") * 2), OWN_GAP]
)
CUMULATIVE = st.builds(
    lambda step, steps, offset: Cumulative(step * steps, step, offset % (step * steps)),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(0, 20),
)
FIXED = CUMULATIVE | st.builds(
    lambda slide, more, offset: Sliding(slide + more, slide, offset % slide) if more else Tumbling(slide),
    st.integers(1, 12),
    st.integers(0, 25),
    st.integers(0, 12),
)


class Hops(WindowAssigner):
    """From none to `windows_max` windows for a row, as its time says. Windows that end together begin each
    elsewhere."""

    def __init__(self, windows_max: int) -> None:
        self.windows_max = windows_max

    def of(self, time_ms: int) -> list[tuple[int, int]]:
        end = time_ms // 10 * 10 + 10
        return [(end - 7 - 10 * n, end) for n in range(time_ms % (self.windows_max + 1))]

    def assign(self, batch: pa.RecordBatch, event_time: Any) -> Any:
        made = [(place, *span) for place, time in enumerate(event_time.tolist()) for span in self.of(time)]
        columns = zip(*reversed(made), strict=True) if made else ([], [], [])
        return tuple(list(column) for column in columns)


OWN = st.builds(Hops, st.integers(1, 3))
FIRINGS = st.builds(Firings, st.integers(0, 30), st.sampled_from(Results))
ON_DISK = [
    ("rows", [(n, user, n, 5, "x") for n, user in enumerate("abä" * 3)]),
    ("rows", [(40, "a", 1, 5, "y"), (50, "a", 2, 5, None)]),
    ("watermark", 12),
    ("rows", [(3, "b", 7, 5, "z"), (30, "ä", 1, 5, "zz")]),
    ("restore", (1, PLAIN)),
    ("rows", [(7, "a", 100, 5, None), (41, "ä", 3, 5, "x")]),
    ("watermark", 45),
    ("rows", [(20, "b", 9, 5, "w")]),
]
"""Most keys have several windows, some fired and some not, when they go."""


@dataclass(eq=False)
class NaiveWindow:
    start: int
    end: int
    rows: list[tuple[int, tuple[Any, ...]]]
    """What counts in the next result: in the order in which they came, with their numbers."""
    has_fired: bool = False


class NaiveSpans:
    """Lists of windows by key. `passed` is how far event time is, by key."""

    def __init__(self, window: Window, firings: Firings) -> None:
        self.window = window
        self.firings = firings
        self.windows: dict[Any, list[NaiveWindow]] = {}
        self.sent: list[tuple[RowKind, tuple[Any, ...]]] = []
        self.late: list[tuple[Any, ...]] = []
        self.rows = 0

    def push(self, rows: list[tuple[Any, ...]], passed: Any) -> None:
        for key in dict.fromkeys(row[1] for row in rows):
            mine = [row for row in rows if row[1] == key]
            self.push_key(key, mine, passed(key))

    def push_key(self, key: Any, rows: list[tuple[Any, ...]], passed_ms: int) -> None:
        windows = self.windows.setdefault(key, [])
        joined: list[tuple[list[NaiveWindow], NaiveWindow]] = [
            ([w], NaiveWindow(w.start, w.end, list(w.rows)))
            for w in windows
            if self.is_open(w.end, passed_ms)
        ]
        counted: set[int] = set()
        for row in rows:
            self.rows += 1
            for start, end in self.spans(row):
                joined.append(([], NaiveWindow(start, end, [(self.rows, row)])))
        while (pair := self.pair_to_join(joined)) is not None:
            one, other = joined[pair[0]], joined.pop(pair[1])
            joined.remove(one)
            whole = NaiveWindow(
                min(one[1].start, other[1].start),
                max(one[1].end, other[1].end),
                sorted(one[1].rows + other[1].rows),
            )
            joined.append((one[0] + other[0], whole))
        first_new = self.rows - len(rows) + 1
        for parts, whole in joined:
            new = {n for n, _ in whole.rows if n >= first_new}
            if not new or not self.is_open(whole.end, passed_ms):
                continue
            counted |= new
            self.change(key, parts, whole, passed_ms)
        self.late += [row for n, row in enumerate(rows, first_new) if n not in counted and self.spans(row)]

    def change(self, key: Any, parts: list[NaiveWindow], whole: NaiveWindow, passed_ms: int) -> None:
        has_kinds = self.firings.results is Results.RETRACTING
        was_sent = False
        for part in parts:
            self.windows[key].remove(part)
            if part.has_fired and has_kinds:
                is_same = (part.start, part.end) == (whole.start, whole.end)
                was_sent |= is_same
                self.send(RowKind.UPDATE_BEFORE if is_same else RowKind.DELETE, key, part)
        self.windows[key].append(whole)
        if whole.end - 1 <= passed_ms:
            self.fire_one(RowKind.UPDATE_AFTER if was_sent else RowKind.INSERT, key, whole)

    def fire(self, passed: Any) -> None:
        for key, windows in self.windows.items():
            for window in windows:
                if not window.has_fired and window.end - 1 <= passed(key):
                    self.fire_one(RowKind.INSERT, key, window)
            windows[:] = [w for w in windows if not w.has_fired or self.is_open(w.end, passed(key))]

    def fire_one(self, kind: RowKind, key: Any, window: NaiveWindow) -> None:
        self.send(kind, key, window)
        window.has_fired = True
        if self.firings.results is Results.DISCARDING:
            window.rows = []

    def send(self, kind: RowKind, key: Any, window: NaiveWindow) -> None:
        rows = [row for _, row in window.rows]
        amounts = [row[2] for row in rows if row[2] is not None]
        noted = [row for row in rows if row[4] is not None]
        latest = max((row[0] for row in noted), default=0)
        result = (
            key, window.start, window.end, len(rows),
            sum(amounts) if amounts else None, LARGE * sum(amounts) if amounts else None,
            max(amounts, default=None),
            float(Fraction(sum(amounts), len(amounts))) if amounts else None,
            min(noted, key=lambda row: row[0])[4] if noted else None,
            [row for row in noted if row[0] == latest][-1][4] if noted else None,
            max((len(row[4]) for row in noted), default=0),
        )  # fmt: skip
        self.sent.append((kind, result))

    def is_open(self, end: int, passed_ms: int) -> bool:
        return end - 1 + self.firings.lateness_ms > passed_ms

    def spans(self, row: tuple[Any, ...]) -> list[tuple[int, int]]:
        match self.window:
            case Hops():
                return self.window.of(row[0])
            case Session(gap_ms=gap_ms, gap=gap):
                own = row[3] if isinstance(gap, str | OwnGap) else 2 * row[3]
                return [(row[0], row[0] + (gap_ms if gap is None else own))]
            case Cumulative(size_ms=size, step_ms=step, offset_ms=offset):
                [start] = [t for t in range(row[0] - size + 1, row[0] + 1) if (t - offset) % size == 0]
                return [(start, end) for end in range(start + step, start + size + 1, step) if end > row[0]]
            case Tumbling(size_ms=size, offset_ms=offset) as window:
                slide = window.slide_ms
            case Sliding(size_ms=size, slide_ms=slide, offset_ms=offset):
                pass
        ends = [end for end in range(row[0] + 1, row[0] + size + 1) if (end - size - offset) % slide == 0]
        return [(end - size, end) for end in ends]

    def pair_to_join(self, joined: list[tuple[list[NaiveWindow], NaiveWindow]]) -> tuple[int, int] | None:
        for i, (_, one) in enumerate(joined):
            for j, (_, other) in enumerate(joined[:i]):
                if isinstance(self.window, Session):
                    is_one = one.start <= other.end and other.start <= one.end
                else:
                    is_one = (one.start, one.end) == (other.start, other.end)
                if is_one:
                    return j, i
        return None


class Run:
    """The real operator, and how far event time was where the state of each key group lives."""

    def __init__(self, configured: WindowAggregate, stack: ExitStack, state: StateBackend) -> None:
        self.configured = configured
        self.stack = stack
        self.state = state
        self.harness = OperatorHarness(configured.create, ["user"], 2, state=state)
        self.sent: list[tuple[RowKind, tuple[Any, ...]]] = []
        self.late: list[tuple[Any, ...]] = []
        self.late_rows = 0
        self.floor: dict[int, int] = {}
        self.watermarks = [MIN_MS] * 2

    def collect(self) -> None:
        for tag, records in self.harness.out.emitted:
            rows = [tuple(row.values()) for row in records.batch.to_pylist()]
            if tag:
                self.late += rows
                continue
            assert records.event_time is not None
            assert records.event_time.tolist() == [row[2] - 1 for row in rows]
            kinds = [0] * len(rows) if records.kind is None else records.kind.tolist()
            self.sent += [(RowKind(kind), row) for kind, row in zip(kinds, rows, strict=True)]
        self.late_rows += self.harness.late_rows
        self.harness.out.emitted.clear()
        self.harness.late_rows = 0

    def passed(self, key: Any) -> int:
        batch = pa.RecordBatch.from_pylist([{"user": key}], pa.schema([SCHEMA.field("user")]))
        group = int(key_groups_of(hash_keys(batch, ["user"]), 128)[0])
        subtask = subtask_of_key_group(128, len(self.watermarks), group)
        return max(self.floor.get(group, MIN_MS), self.watermarks[subtask])

    def advance(self, subtasks: range | list[int], time_ms: int) -> None:
        while self.harness.fire(3):
            pass
        for subtask in subtasks:
            self.watermarks[subtask] = max(self.watermarks[subtask], time_ms)
            self.harness.advance(self.watermarks[subtask], subtask)

    def begin(self, time_ms: int, pieces: int) -> None:
        while self.harness.fire(3):
            pass
        self.watermarks = [max(watermark, time_ms) for watermark in self.watermarks]
        for operator, watermark in zip(self.harness.subtasks, self.watermarks, strict=True):
            operator.on_watermark(watermark)
        for _ in range(pieces):
            self.harness.fire(1)

    def restore(self, parallelism: int, chosen: Any) -> None:
        for group in range(128):
            subtask = subtask_of_key_group(128, len(self.watermarks), group)
            self.floor[group] = max(self.floor.get(group, MIN_MS), self.watermarks[subtask])
        states = self.harness.snapshot()
        self.harness.push(as_batch([(1, "a", 5, 5, "lost"), (50, "b", 5, 5, "lost")]), [1, 50])
        self.harness.finish()  # what happens after the snapshot is lost in the crash
        self.stack.enter_context(using(chosen))
        state = UNLIMITED if parallelism == 2 else self.state  # a savepoint may go to the other backend
        self.harness = OperatorHarness(
            self.configured.create, ["user"], parallelism, states=states, state=state
        )
        self.watermarks = [MIN_MS] * parallelism


def as_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row[1:], strict=True)) for row in rows], SCHEMA)


ENDS_TOGETHER = (7, "a", 1, 1, "x")
"""A row in three windows of `Hops(3)`."""


def test_windows_that_end_together_and_become_one_are_found() -> None:
    mutant = Mutant("windows are told apart by their end alone", [(span_rows, "join_same", join_equal)])
    with mutated(mutant), using(PLAIN), ExitStack() as stack, pytest.raises(AssertionError):
        check_run([("rows", [ENDS_TOGETHER])], Hops(3), Firings(), stack, UNLIMITED)


@settings(max_examples=80, deadline=None)
@given(steps=st.lists(STEP, max_size=14), window=SESSIONS | FIXED | OWN, firings=FIRINGS)
@example([("rows", [ENDS_TOGETHER])], Hops(3), Firings())
@example([("rows", [(0, "a", 1, 5, "x"), (5, "a", 2, 1, "y"), (7, "a", 2, 1, None)])], OWN_GAP, Firings())
@example(
    [("rows", [(0, "a", None, 1, None), (1, "a", None, 1, ""), (1, "a", None, 1, "x")])], Hops(1), Firings()
)
@example([("watermark", 30), ("rows", [ENDS_TOGETHER, (4, "a", 1, 1, "x")])], Hops(3), Firings())
def test_windows_that_change_agree_with_naive_lists(
    steps: list[Any], window: Window, firings: Firings
) -> None:
    with using(PLAIN), ExitStack() as stack:
        check_run(steps, window, firings, stack, UNLIMITED)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEP, max_size=14), window=SESSIONS | FIXED | OWN, firings=FIRINGS)
def test_windows_that_change_and_build_on_each_other_agree_with_naive_lists(
    steps: list[Any], window: Window, firings: Firings
) -> None:
    with using(PLAIN), ExitStack() as stack:
        check_run(steps, window, firings, stack, INCREMENTAL)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEP, max_size=14), window=SESSIONS | FIXED | OWN, firings=FIRINGS)
@example(steps=ON_DISK, window=Session(5), firings=Firings(30, Results.RETRACTING))
@example(steps=ON_DISK, window=Cumulative(20, 5, 0), firings=Firings(30, Results.ACCUMULATING))
def test_windows_that_change_in_rocksdb_agree_with_naive_lists(
    steps: list[Any], window: Window, firings: Firings
) -> None:
    with using(PLAIN), tight_rocksdb(rows_in_memory=1) as state, ExitStack() as stack:
        check_run(steps, window, firings, stack, state)


def check_run(
    steps: list[Any], window: Window, firings: Firings, stack: ExitStack, state: StateBackend
) -> None:
    configured = WindowAggregate("w", ("user",), window, AGGREGATES, SCHEMA, late=True, firings=firings)
    run, naive = Run(configured, stack, state), NaiveSpans(window, firings)
    fires_at_once = True
    for kind, value in [*steps, ("watermark", MAX_MS)]:
        if kind == "rows":
            naive.push(value, run.passed)
            run.harness.push(as_batch(value), [row[0] for row in value])
        elif kind == "restore":
            run.collect()
            run.restore(*value)
        elif kind == "begin":
            if firings.lateness_ms and not firings.has_kinds:
                continue  # there a row that comes before a window has fired makes one firing of two
            fires_at_once = False
            run.begin(*value)
            naive.fire(run.passed)
        else:
            chosen = range(len(run.watermarks)) if kind == "watermark" else [value % len(run.watermarks)]
            run.advance(chosen, value)
            naive.fire(run.passed)
        run.collect()
    if fires_at_once:
        assert Counter(run.sent) == Counter(naive.sent)
    assert left_of(run.sent) == left_of(naive.sent)
    assert Counter(run.late) == Counter(row[1:] for row in naive.late)
    assert run.late_rows == len(naive.late)
    assert not any(run.harness.snapshot()[0].batches("spans")), "nothing stays when all has passed"


def not_woken(self: Any, kind: int, units: Any, times: Any) -> None:
    """A key that goes to disk does not say when it has to be back."""


def not_noted(self: Any, rows: Any) -> None:
    """What a firing does to a window is no change."""


KEPT_IN_MEMORY = partial(nullcontext, INCREMENTAL)
FIRED = [
    ("rows", [(n, user, n, 5, "x") for n, user in enumerate("abä")]),
    ("watermark", 12),
    ("restore", (1, PLAIN)),
    ("rows", [(3, "a", 7, 5, "z"), (3, "b", 7, 5, "z"), (3, "ä", 7, 5, "z")]),
]
MUTANTS = (
    (Mutant("windows on disk don't fire", [(RocksUnits, "_put_wakes", not_woken)]), ON_DISK, tight_rocksdb),
    (
        Mutant("a firing is in no increment", [(HeapGroups, "note_changed", not_noted)]),
        FIRED,
        KEPT_IN_MEMORY,
    ),
)


@pytest.mark.parametrize(("mutant", "steps", "backend"), MUTANTS, ids=[m.title for m, _, _ in MUTANTS])
def test_mutant_is_killed(mutant: Mutant, steps: list[Any], backend: Any) -> None:
    firings = Firings(30, Results.RETRACTING)
    with backend() as state, using(PLAIN):
        with ExitStack() as stack:
            check_run(steps, Session(5), firings, stack, state)
        with ExitStack() as stack, mutated(mutant), pytest.raises(AssertionError):
            check_run(steps, Session(5), firings, stack, state)


def left_of(sent: list[tuple[RowKind, tuple[Any, ...]]]) -> Counter[Any]:
    """The rows there are when all of these changes are done, each of which takes back a row that is there."""
    left: Counter[Any] = Counter()
    for kind, row in sent:
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            left[row] += 1
        else:
            assert left[row], (kind, row)
            left[row] -= 1
    return +left
