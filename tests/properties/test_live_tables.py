"""What windows and joins that run answer for keys is what a snapshot has of these keys, and asking changes
nothing: neither what is sent, nor what is kept, nor what is in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.aggregation.aggregates import (
    Aggregate,
    approx_count_distinct,
    approx_quantile,
    collect_list,
    count,
    count_distinct,
    first,
    max_,
    mean,
    sum_,
)
from onceflow.runtime.operators.assigners.by_clock import ByClock
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.cumulative import Cumulative
from onceflow.runtime.operators.assigners.firings import ONCE, Firings, Results
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.joins import joined_rows
from onceflow.runtime.operators.joins.interval_join import IntervalJoin
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns
from onceflow.runtime.operators.joins.joined_rows import JoinedRows
from onceflow.runtime.operators.joins.regular_join import RegularJoin
from onceflow.runtime.operators.joins.runs import Run
from onceflow.runtime.operators.joins.temporal_join import TemporalJoin
from onceflow.runtime.operators.joins.window_join import WindowJoin
from onceflow.runtime.operators.operator import PeekedOperator
from onceflow.runtime.operators.triggers.built_in import at_watermark, every_processing_time, every_rows
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.pane_operator import PaneOperator
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.description import TimeToLive
from onceflow.runtime.state.grouped_table import peeked_rows
from onceflow.runtime.state.hashing import hash_keys, with_start, without_start
from onceflow.runtime.state.heap import key_index
from onceflow.runtime.state.heap.key_index import KeyIndex
from onceflow.runtime.state.overflow import (
    UNLIMITED,
    GroupedOverflow,
    Overflow,
    StateBackend,
)
from onceflow.runtime.state.rocks import rocks_units
from onceflow.runtime.state.rocks.rocks_groups import RocksGroups
from onceflow.runtime.state.snapshot_options import WHOLE
from onceflow.runtime.state_tables.listing import shapes_of_operator
from onceflow.runtime.state_tables.live import rows_of, slots_of
from onceflow.runtime.testing.harness import OperatorHarness, Row
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb

GROUPS = 8
LEFT = pa.schema([("user", pa.string()), ("n", pa.int64()), ("note", pa.string())])
RIGHT = pa.schema([("n", pa.int64()), ("name", pa.string())])
USERS = ["a", "b", "ü", "", None, "c"]
ASKED = pa.record_batch({"user": pa.array([*USERS[:5], "never", "a"], pa.string())})
"""One that is there is not asked for, one is never there, and one is asked for twice."""
AGGREGATES: Mapping[str, Aggregate] = {
    "rows": count(),
    "total": sum_("n"),
    "high": max_("n"),
    "mean": mean("n"),
    "first": first("note"),
    "all": collect_list("note"),
    "different": count_distinct("note"),
    "about": approx_count_distinct("note"),
    "half": approx_quantile("n", 0.5),
}


def longer(a: Any, b: Any) -> Any:
    """The record with the longer note."""
    return b if len(b.note or "") > len(a.note or "") else a


def windows(window: Window, firings: Firings = ONCE) -> WindowAggregate:
    return WindowAggregate("asked", ("user",), window, AGGREGATES, LEFT, firings=firings)


def columns(how: str) -> JoinedColumns:
    return JoinedColumns("asked", (("user",), ("name",)), how)


def joined(kind: Callable[..., Any], how: str, *arguments: Any) -> Any:
    return kind(columns(how), (LEFT, RIGHT), *arguments)


def passes(how: str) -> Any:
    return columns(how).passes(LEFT, RIGHT)


LATE = Firings(10, Results.RETRACTING)
WINDOWS = {
    "tumbling": windows(Tumbling(10)),
    "sliding": windows(Sliding(20, 5)),
    "sliding, reduced": WindowReduce("asked", ("user",), Sliding(20, 10), longer, LEFT),
    "sessions": windows(Session(7)),
    "late": windows(Tumbling(10), LATE),
    "discarding": windows(Sliding(20, 10), Firings(10, Results.DISCARDING)),
    "cumulative": windows(Cumulative(20, 5)),
    "by the clock": windows(ByClock(Tumbling(10))),
    "counts": windows(CountWindow(3)),
    "sliding counts": windows(CountWindow(4, 2)),
    "early": windows(Tumbling(20), Firings(5, Results.RETRACTING, at_watermark(early=every_rows(2)))),
    "global": windows(GlobalWindow(), Firings(0, Results.ACCUMULATING, every_rows(3))),
    "global by the clock": windows(GlobalWindow(), Firings(0, Results.DISCARDING, every_processing_time(9))),
}
JOINS = {
    "interval": joined(IntervalJoin, "inner", passes("inner"), -5, 10),
    "interval, full": joined(IntervalJoin, "full", passes("full"), -5, 10),
    "temporal": joined(TemporalJoin, "left", passes("left")),
    "window": joined(WindowJoin, "full", Tumbling(10), passes("full")),
    "sliding windows": joined(WindowJoin, "inner", Sliding(20, 5), passes("inner")),
    "regular": joined(RegularJoin, "full", passes("full")),
    "regular, with ttl": joined(RegularJoin, "inner", passes("inner"), None, TimeToLive(15, False)),
}
CASES: dict[str, Any] = {**WINDOWS, **JOINS}
Move = tuple[str, Any]

ROWS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(USERS), st.none() | st.integers(0, 5)),
    min_size=1,
    max_size=9,
)
MOVE = st.one_of(
    st.tuples(st.sampled_from(["left", "right"]), ROWS),
    st.tuples(st.sampled_from(["left", "right"]), ROWS),
    st.tuples(st.just("watermark"), st.integers(0, 70)),
    st.tuples(st.just("begin"), st.tuples(st.integers(0, 70), st.integers(1, 3))),
    st.tuples(st.just("tick"), st.integers(1, 12)),
    st.tuples(st.just("restore"), st.integers(1, 3)),
)
MANY: list[Move] = [
    *(
        (side, [(10 * n + k, user, k) for k, user in enumerate(USERS)])
        for n in range(4)
        for side in ("left", "right")
    ),
    ("begin", (12, 1)),
    ("left", [(21, "a", 1), (22, None, 2), (23, "b", None)]),
    ("watermark", 16),
    ("restore", 3),
    ("right", [(33, user, 7) for user in USERS]),
    ("left", [(33, user, 7) for user in reversed(USERS)]),
    ("tick", 10),
    ("watermark", 31),
    ("left", [(34, "a", 7), (61, "a", 1)]),
]
"""Each key has rows of each side; more keys than have room in memory, and windows that are half fired."""


@dataclass
class Watched:
    """A backend that knows what it has made."""

    of: StateBackend
    made: list[tuple[Any, Any]]

    @property
    def snapshots(self) -> Any:
        return self.of.snapshots

    @property
    def is_unlimited(self) -> bool:
        return self.of.is_unlimited

    def queue_bytes(self) -> Any:
        return self.of.queue_bytes()

    def overflow(self, table: Any, layout: Any) -> Overflow:
        self.made.append((table, self.of.overflow(table, layout)))
        return self.made[-1][1]

    def grouped_overflow(self, table: Any, columns: Sequence[str]) -> GroupedOverflow:
        self.made.append((table, self.of.grouped_overflow(table, columns)))
        return self.made[-1][1]

    def usage(self) -> list[tuple[Any, ...]]:
        """What is in memory, what is on disk, and when anything was used last."""
        return [
            (len(table), table.size, *(getattr(overflow, name, None) for name in ("_units", "_rows", "_now")))
            for table, overflow in self.made
        ]


class Played:
    """An operator that moves are made with."""

    def __init__(self, config: Any, state: StateBackend) -> None:
        self.config, self.backend = config, Watched(state, [])
        self.watermark = 0
        self.harness = self.make(2)
        self.sent: list[Any] = []

    def make(self, parallelism: int, states: Any = None) -> OperatorHarness:
        clock = self.harness.clock if states is not None else None
        return OperatorHarness(
            self.config.create, ["user"], parallelism, GROUPS, states, clock, ["name"], state=self.backend
        )

    def move(self, kind: str, what: Any) -> None:
        if kind == "left":
            rows = [{"user": user, "n": n, "note": None if n is None else "x" * n} for _, user, n in what]
            self.harness.push(pa.RecordBatch.from_pylist(rows, LEFT), [row[0] for row in what])
        elif kind == "right":
            if self.config in JOINS.values():
                rows = [{"n": n, "name": user} for _, user, n in what]
                self.harness.push_right(pa.RecordBatch.from_pylist(rows, RIGHT), [row[0] for row in what])
        elif kind == "tick":
            self.harness.tick(what)
        elif kind == "restore":
            self.collect()
            states = self.harness.snapshot()
            self.harness.close()
            self.backend.made.clear()
            self.harness = self.make(what, states)
            self.harness.begin(self.watermark)
        else:
            time_ms, pieces = what if kind == "begin" else (what, None)
            while self.harness.fire(1 << 10):
                pass  # the watermark before is through
            self.watermark = max(time_ms, self.watermark)
            if pieces is None:
                self.harness.advance(self.watermark)
            else:
                self.harness.begin(self.watermark)
                self.harness.fire(pieces)
        self.collect()

    def collect(self) -> None:
        for tag, records in self.harness.out.emitted:
            times = None if records.event_time is None else records.event_time.tolist()
            kinds = None if records.kind is None else records.kind.tolist()
            self.sent.append((tag, records.batch.to_pylist(), times, kinds))
        self.harness.out.emitted.clear()

    def asked(self) -> list[Row]:
        """The rows that it has of the keys ASKED, as it says itself."""
        shape, before = self.shape, self.backend.usage()
        rows: list[Row] = []
        owners = slots_of(hash_keys(ASKED, ["user"]), GROUPS, len(self.harness.subtasks))
        for slot, places in owners.items():
            operator = self.harness.subtasks[slot]
            assert isinstance(operator, PeekedOperator)
            rows += rows_of(shape, operator.peek(AskedKeys(ASKED.take(pa.array(places))))).to_pylist()
        assert self.backend.usage() == before, "nothing comes or goes for a question, or counts as used"
        return rows

    def kept(self) -> list[Row]:
        """The rows of these keys in a snapshot."""
        shape, rows = self.shape, list[Row]()
        for state in self.harness.snapshot():
            for batch in state.batches(shape.table):
                for found in shape.rows(batch, shape.schema(batch.schema)):
                    rows += found.to_pylist()
        users = ASKED.column("user").to_pylist()
        return [row for row in rows if row["user"] in users]

    @property
    def shape(self) -> Any:
        (shape,) = shapes_of_operator("asked", self.config.description)
        return shape


def said(rows: Sequence[Row]) -> list[str]:
    """Rows that can be compared: a snapshot may leave a column out in which nothing is."""
    return sorted(repr({name: v for name, v in row.items() if v not in (None, False, [])}) for row in rows)


def without_expired(rows: Sequence[Row], config: Any, watermark: int) -> list[Row]:
    """The rows without those that no row to come can meet. An increment leaves them in the files before it,
    and an operator that runs lets go of them by and by."""
    if isinstance(config, TemporalJoin):
        return [row for row in rows if row["event_time"] > watermark]
    if not isinstance(config, IntervalJoin | RegularJoin):
        return list(rows)
    keep_ms = (15, 15) if isinstance(config, RegularJoin) else config.keep_ms
    if isinstance(config, RegularJoin) and config.ttl is None:
        return list(rows)
    return [row for row in rows if row["event_time"] > watermark - keep_ms[row["is_right"]]]


SMALL = Mutant("small", [(key_index, "_LOOKED_ROWS", 4), (joined_rows, "_SEARCHED_PART", 0)])
"""Few rows are looked at at a time, and those of joins are always searched for, as in a large table."""


def check(config: Any, moves: Sequence[Move], state: StateBackend, is_small: bool = True) -> None:
    with mutated(SMALL) if is_small else nullcontext():
        _check(config, moves, state)


def _check(config: Any, moves: Sequence[Move], state: StateBackend) -> None:
    """Make the moves with an operator that is asked after each, with one that never is, and with one of which
    there is a snapshot after each."""
    three = [Played(config, state) for _ in range(3)]
    asked, never, stored = three
    for kind, what in moves:
        for played in three:
            played.move(kind, what)
        answered, kept = asked.asked(), stored.kept()
        if state.snapshots.are_incremental and config in JOINS.values():
            assert not Counter(said(answered)) - Counter(said(kept)), (kind, what)
            answered, kept = (without_expired(rows, config, asked.watermark) for rows in (answered, kept))
        assert said(answered) == said(kept), (kind, what)
    assert said(asked.kept()) == said(never.kept())
    for played in three:
        played.move("watermark", 1 << 40)
        played.harness.close()
    assert asked.sent == never.sent


BACKENDS = ["heap", "heap, incremental", "rocksdb", "rocksdb, incremental"]


def backend(name: str, stack: ExitStack) -> StateBackend:
    if name.startswith("rocksdb"):
        return stack.enter_context(tight_rocksdb() if "incremental" in name else tight_rocksdb(2, WHOLE))
    return INCREMENTAL if "incremental" in name else UNLIMITED


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("where", BACKENDS)
def test_answers_are_what_a_snapshot_has(name: str, where: str) -> None:
    with ExitStack() as stack:
        check(CASES[name], MANY, backend(where, stack))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(CASES)), st.lists(MOVE, max_size=10), st.sampled_from(BACKENDS[:2]), st.booleans()
)
def test_so_they_are_for_any_moves_in_memory(name: str, moves: list[Move], where: str, small: bool) -> None:
    with ExitStack() as stack:
        check(CASES[name], moves, backend(where, stack), small)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(list(CASES)), st.lists(MOVE, max_size=8), st.sampled_from(BACKENDS[2:]), st.booleans())
def test_so_they_are_for_any_moves_on_disk(name: str, moves: list[Move], where: str, small: bool) -> None:
    with ExitStack() as stack:
        check(CASES[name], moves, backend(where, stack), small)


def _also_removed(self: KeyIndex, asked: AskedKeys, starts: Any) -> Any:
    hashes = without_start(self.hashes, starts)
    return np.flatnonzero(asked.are(hashes, self.checks))


def _one_start(self: KeyIndex, asked: AskedKeys, starts: Any) -> Any:
    return np.sort(np.unique(_also_removed(self, asked, starts)))[:1]


def _all_rows(self: JoinedRows, numbers: Any) -> Any:
    return self.live_rows().all()


def _with_expired(self: Run, keys: Any, limit: int) -> Any:
    return np.flatnonzero(np.isin(self.row, keys))


def _first_start_only(database: Any, from_ms: Mapping[int, int], asked: AskedKeys) -> Any:
    starts = [next(database.wake_times(kind, first_ms)) for kind, first_ms in from_ms.items()]
    return np.stack((with_start(asked.hashes, np.full(len(asked), starts[0])), asked.checks), axis=1)


def _comes_back(self: RocksGroups, asked: AskedKeys, max_parallelism: int) -> Any:
    self.find_keys(asked.batch, asked.hashes)
    return peeked_rows(self._table, asked, max_parallelism)


def _without_fired(self: PaneOperator, asked: AskedKeys) -> Any:
    return [self._table.peek(asked, self._context.max_parallelism)]


ALL = [
    (AskedKeys, "near", lambda self, hashes: np.arange(len(hashes))),
    (AskedKeys, "are", lambda self, hashes, checks: np.ones(len(hashes), np.bool_)),
]
NOTHING = [(rocks_units, "looked_up", lambda *_: ([], None))]


@pytest.mark.parametrize(
    ("title", "replaced", "name", "where"),
    [
        ("windows that have fired are told", [(KeyIndex, "rows_of_keys", _also_removed)], "tumbling", 0),
        ("one window of a key is told", [(KeyIndex, "rows_of_keys", _one_start)], "tumbling", 0),
        ("it is not told what has fired", [(PaneOperator, "peek", _without_fired)], "sliding", 0),
        ("all keys are told", [(JoinedRows, "rows_of_keys", _all_rows)], "temporal", 0),
        ("what has expired is told", [(Run, "live_of", _with_expired)], "interval", 0),
        ("all keys of a window are told", ALL, "window", 0),
        ("one start is looked up", [(rocks_units, "with_starts", _first_start_only)], "tumbling", 2),
        ("keys come back for it", [(RocksGroups, "_peek", _comes_back)], "sessions", 2),
        ("keys on disk are missed", NOTHING, "window", 3),
    ],
)
def test_mutant_is_killed(title: str, replaced: Any, name: str, where: int) -> None:
    with ExitStack() as stack:
        state = backend(BACKENDS[where], stack)
        stack.enter_context(mutated(Mutant(title, replaced)))
        with pytest.raises(AssertionError):
            check(CASES[name], MANY, state)
