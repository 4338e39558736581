"""Regular joins against nested loops that take rows one by one: updates and deletes, times to live, disorder,
any batches, watermarks, and restores at another parallelism."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.joins import equal_rows, regular_join
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns
from onceflow.runtime.operators.joins.meetings import Meetings
from onceflow.runtime.operators.joins.ordered_changes import OrderedChanges
from onceflow.runtime.operators.joins.regular_join import RegularJoin, RegularJoinOperator
from onceflow.runtime.operators.joins.runs import EVER_MS, PAIRS_MAX, SideRows
from onceflow.runtime.records import WATERMARK_MIN_MS, RowKind
from onceflow.runtime.state.description import TimeToLive
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated

LEFT = pa.schema([("id", pa.string()), ("n", pa.int64()), ("of", pa.list_(pa.float64()))])
RIGHT = pa.schema([("n", pa.int64()), ("ref", pa.string()), ("mark", pa.int64())])
CONDITION = pl.col("n") <= pl.col("n_right")
TTL_MS = 20
ADDS = (RowKind.INSERT, RowKind.UPDATE_AFTER)


class Row(NamedTuple):
    id: str | None
    n: int | None
    ts: int
    kind: RowKind = RowKind.INSERT


class Case(NamedTuple):
    how: str
    ttl: str | None
    has_condition: bool = False
    has_kinds: bool = True

    def config(self) -> RegularJoin:
        columns = JoinedColumns("j", (("id",), ("ref",)), self.how)
        ttl = None if self.ttl is None else TimeToLive(TTL_MS, self.ttl == "processing")
        condition = CONDITION if self.has_condition else None
        return RegularJoin(columns, (LEFT, RIGHT), columns.passes(LEFT, RIGHT), condition, ttl)

    @property
    def pads(self) -> tuple[bool, bool]:
        return self.how in ("left", "full"), self.how in ("right", "full")


# --- The model ---


@dataclass
class Kept:
    row: Row
    since: int
    partners: int = 0


Change = tuple[bool, tuple[Any, ...]]
"""(whether it is a new row, the row with its event time)"""


@dataclass
class Model:
    """Takes a row at a time, and says what it causes."""

    case: Case
    kept: tuple[list[Kept], list[Kept]] = field(default_factory=lambda: ([], []))

    def take(self, side: int, row: Row, now: int) -> list[Change]:
        if row.kind in ADDS:
            return self._add(side, Kept(row, now))
        return self._take_back(side, row, now)

    def _add(self, side: int, mine: Kept) -> list[Change]:
        changes = []
        for other in self._partners(side, mine):
            if self.case.pads[1 - side] and other.partners == 0:
                changes.append((False, self._out(1 - side, other, None, mine.row)))
            changes.append((True, self._out(side, mine, other, mine.row)))
            mine.partners += 1
            other.partners += 1
        if self.case.pads[side] and not mine.partners:
            changes.append((True, self._out(side, mine, None, mine.row)))
        self.kept[side].append(mine)
        return changes

    def _take_back(self, side: int, row: Row, now: int) -> list[Change]:
        if row.id is None:
            return [(False, self._out(side, Kept(row, now), None, row))] if self.case.pads[side] else []
        equal = [each for each in self.kept[side] if each.row[:2] == row[:2] and self._is_there(each, now)]
        if not equal:
            return []
        mine = max(equal, key=lambda each: (each.since, each.row.ts, each.partners))
        self.kept[side].remove(mine)
        changes = []
        if self.case.pads[side] and not mine.partners:
            changes.append((False, self._out(side, Kept(row, now), None, row)))
        for other in self._partners(side, mine):
            if self._is_there(other, now):
                changes.append((False, self._out(side, Kept(row, now), other, row)))
                other.partners -= 1
                if self.case.pads[1 - side] and not other.partners:
                    changes.append((True, self._out(1 - side, other, None, row)))
        return changes

    def _is_there(self, kept: Kept, now: int) -> bool:
        return self.case.ttl is None or now < kept.since + TTL_MS

    def _partners(self, side: int, mine: Kept) -> list[Kept]:
        return [other for other in self.kept[1 - side] if self._join(*_in_order(side, mine, other))]

    def _join(self, left: Kept, right: Kept) -> bool:
        """The whole of what a pair is."""
        a, b = left.row.n, right.row.n
        return (
            left.row.id is not None
            and left.row.id == right.row.id
            and (self.case.ttl is None or abs(left.since - right.since) < TTL_MS)
            and (not self.case.has_condition or (a is not None and b is not None and a <= b))
        )

    def _out(self, side: int, mine: Kept, other: Kept | None, cause: Row) -> tuple[Any, ...]:
        left, right = _in_order(side, mine, other)
        some = left or right
        assert some is not None
        times = [cause.ts, *(each.row.ts for each in (left, right) if each is not None)]
        left_n, right_n = (None if each is None else each.row.n for each in (left, right))
        return some.row.id, left_n, right_n, left is None, right is None, max(times)


def _in_order(side: int, mine: Any, other: Any) -> tuple[Any, Any]:
    return (mine, other) if side == 0 else (other, mine)


# --- The operator beside it ---


class Play:
    def __init__(self, case: Case) -> None:
        self.case, self.model, self.clock = case, Model(case), ManualClock()
        self.watermark = WATERMARK_MIN_MS
        self.harness = self.make(2)
        self.sent = 0
        self.result: Counter[tuple[Any, ...]] = Counter()

    def make(self, parallelism: int, states: Any = None) -> OperatorHarness:
        create = self.case.config().create
        keys = ("id",), ("ref",)
        return OperatorHarness(create, keys[0], parallelism, 8, states, self.clock, right_keys=keys[1])

    def push(self, side: int, rows: Sequence[Row]) -> None:
        if not self.case.has_kinds:
            rows = [row._replace(kind=RowKind.INSERT) for row in rows]
        expected: dict[Any, list[list[Change]]] = defaultdict(list)
        for row in rows:
            now = self.comes_at(row)
            if changes := self.model.take(side, row, now):
                expected[row.id].append(changes)
        kinds = [row.kind for row in rows] if self.case.has_kinds else None
        if side == 0:
            made = [{"id": row.id, "n": row.n, "of": [1.5, None]} for row in rows]
            self.harness.push(pa.RecordBatch.from_pylist(made, LEFT), [row.ts for row in rows], kind=kinds)
        else:
            made = [{"n": row.n, "ref": row.id, "mark": 7} for row in rows]
            self.harness.push_right(pa.RecordBatch.from_pylist(made, RIGHT), [row.ts for row in rows], kinds)
        self.check(expected)

    def comes_at(self, row: Row) -> int:
        match self.case.ttl:
            case "processing":
                return self.clock.now_ms()
            case "event":
                return max(row.ts, self.watermark)
            case _:
                return row.ts

    def check(self, expected: dict[Any, list[list[Change]]]) -> None:
        """Each row causes what it has to. Of a join that pads, in the order of the rows, too."""
        found: dict[Any, list[Change]] = defaultdict(list)
        for change in self.take():
            found[change[1][0]].append(change)
        assert found.keys() == expected.keys()
        for key, causes in expected.items():
            sent = found[key]
            assert Counter(sent) == Counter(change for cause in causes for change in cause)
            if any(self.case.pads):
                for cause in causes:
                    its, sent = sent[: len(cause)], sent[len(cause) :]
                    assert Counter(its) == Counter(cause)

    def take(self) -> list[Change]:
        """What was sent since the last time; nothing is taken back that is not there."""
        found = []
        for _, records in self.harness.out.emitted:
            assert records.event_time is not None
            kinds = [0] * len(records) if records.kind is None else records.kind.tolist()
            rows = zip(kinds, records.event_time.tolist(), records.batch.to_pylist(), strict=True)
            for kind, time, row in rows:
                assert list(row) == ["id", "n", "of", "n_right", "mark"]
                is_new, shown = kind in ADDS, str(row)
                self.result[shown] += 1 if is_new else -1
                assert row["id"] is None or self.result[shown] >= 0, "it takes back what is not there"
                lone = row["of"] is None, row["mark"] is None
                found.append((is_new, (row["id"], row["n"], row["n_right"], *lone, time)))
        self.harness.out.emitted.clear()
        return found


def play(case: Case, moves: Sequence[tuple[str, Any]]) -> Play:
    run = Play(case)
    for kind, value in moves:
        match kind:
            case "left":
                run.push(0, value)
            case "right":
                run.push(1, value)
            case "watermark":
                run.watermark = max(run.watermark, value)
                run.harness.advance(run.watermark)
            case "clock":
                run.harness.tick(value)
            case "restore":
                run.harness = run.make(value, run.harness.snapshot())
    assert not run.harness.out.emitted, "only rows cause something"
    return run


KIND = st.sampled_from([RowKind.INSERT, RowKind.INSERT, *RowKind])
ROW = st.builds(
    Row, st.sampled_from(["a", "a", "b", "", None]), st.none() | st.integers(0, 2), st.integers(-30, 60), KIND
)
ROWS = st.lists(ROW, min_size=1, max_size=12)
MOVE = st.one_of(
    st.tuples(st.sampled_from(["left", "right"]), ROWS),
    st.tuples(st.sampled_from(["left", "right"]), ROWS),
    st.tuples(st.just("watermark"), st.integers(-40, 70)),
    st.tuples(st.just("clock"), st.integers(0, 15)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)
CASE = st.builds(
    Case,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from([None, "event", "processing"]),
    st.booleans(),
    st.booleans(),
)
GONE = [Row("a", 1, 0, RowKind.DELETE)]
TWICE = [Row("a", 1, 0), Row("a", 1, 30)]
TO_AND_FRO: list[tuple[str, Any]] = [
    ("left", [Row("a", 1, 3), Row("b", 0, 1), Row("a", None, 1)]),
    ("right", [Row("a", 0, 5), *GONE, Row("a", 1, 5), Row("b", 1, 9)]),
    *(("right", [Row("a", 2, n)]) for n in range(9)),
    ("left", [*GONE, Row("a", 1, 4, RowKind.UPDATE_AFTER), *GONE, Row("c", 1, 4), Row("c", 1, 4)]),
    ("restore", 3),
    ("right", [Row("a", n % 3, 9, RowKind.DELETE) for n in range(12)]),
    ("watermark", 8),
    ("right", [Row("c", 1, 4, RowKind.UPDATE_BEFORE), Row("c", 2, 4)]),
    ("left", [Row("c", 1, 24, RowKind.UPDATE_BEFORE), Row("c", 1, 27, RowKind.UPDATE_BEFORE)]),
    ("clock", 30),
    ("left", [Row("a", 2, 5), Row("a", 2, 29), Row("b", 1, 29)]),
]
APART: list[tuple[str, Any]] = [
    ("left", [Row("a", 1, 0), Row("b", 1, 20), Row("c", 1, 10)]),
    ("right", [Row("b", 2, 0), Row("b", 2, 1)]),
    ("watermark", 12),
    ("right", [Row("a", 1, 20), Row("b", 1, 0), Row("c", 1, 12)]),
]
"""Rows that are to meet, just not, and late."""
ONE_OF_MANY = [
    ("left", [Row("a", n, 0) for n in range(9)]),
    ("left", GONE),
    ("restore", 1),
    ("right", [Row("a", 0, 1), Row("a", 3, 1)]),
]
"""One row goes of a run that stays, and then rows come of which the first has other partners."""
PLAYS = [
    (Case("full", None), TO_AND_FRO),
    (Case("full", "event"), TO_AND_FRO),
    (Case("left", "event"), [("left", TWICE), ("watermark", 25), ("left", [*GONE, *GONE])]),
    (Case("full", "event"), APART),
    (Case("full", None, has_condition=True), [*ONE_OF_MANY, ("right", [Row("a", None, 2), Row("a", 2, 2)])]),
]


@settings(max_examples=100, deadline=None)
@given(CASE, st.lists(MOVE, max_size=14))
@example(*PLAYS[0])
@example(*PLAYS[1])
@example(*PLAYS[2])
def test_a_join_agrees_with_nested_loops(case: Case, moves: list[tuple[str, Any]]) -> None:
    play(case, moves)


@settings(max_examples=30, deadline=None)
@given(CASE, ROWS, ROWS, st.lists(st.integers(1, 4), min_size=24))
def test_what_comes_out_does_not_hang_on_how_batches_were_cut(
    case: Case, left: list[Row], right: list[Row], cuts: list[int]
) -> None:
    whole, cut = Play(case), Play(case)
    for side, rows in ((0, left), (1, right), (0, right)):
        whole.push(side, rows)
        rest, sizes = rows, iter(cuts)
        while rest:
            size = next(sizes)
            cut.push(side, rest[:size])
            rest = rest[size:]
    assert whole.result == cut.result


def kept_rows(run: Play) -> int:
    operators = [op for op in run.harness.subtasks if isinstance(op, RegularJoinOperator)]
    return sum(len(side) for op in operators for side in op._meetings.sides)


def keys_of(run: Play) -> int:
    return sum(len(op._keys) for op in run.harness.subtasks if isinstance(op, RegularJoinOperator))


def test_rows_that_expired_or_were_taken_back_are_let_go_of_and_so_are_their_keys() -> None:
    for ttl, last in (("event", RowKind.INSERT), (None, RowKind.DELETE)):
        run = Play(Case("full", ttl))
        for first in range(0, 6_000, 300):
            rows = [Row(f"k{n}", n % 3, n) for n in range(first, first + 300)]
            run.push(0, rows)
            run.push(0, [row._replace(kind=last) for row in rows])
            run.watermark = first
            run.harness.advance(first)
        assert kept_rows(run) < 2_000
        assert keys_of(run) < 3_000


def test_one_row_that_meets_very_many_sends_them_in_pieces_and_many_rows_are_taken_some_at_a_time() -> None:
    run = Play(Case("full", None))
    many = [{"id": "a", "n": n % 4, "of": None} for n in range(3 * PAIRS_MAX // 2)]
    run.harness.push(pa.RecordBatch.from_pylist(many, LEFT), [5] * len(many))
    run.harness.out.emitted.clear()
    some = [{"n": 1, "ref": "a", "mark": 7}] * 2
    for kind in (RowKind.INSERT, RowKind.DELETE):
        run.harness.push_right(pa.RecordBatch.from_pylist(some, RIGHT), [6, 6], [kind] * 2)
        sizes = [len(records) for _, records in run.harness.out.emitted]
        assert sum(sizes) == 3 * len(many), "two pairs for each, and the row alone"
        assert max(sizes) <= PAIRS_MAX
        run.harness.out.emitted.clear()


# --- What a wrong join would do ---

_keep, _met_by = Meetings._keep, Meetings._met_by
_frozen, _add, _ranks = SideRows.frozen, OrderedChanges.add, equal_rows._ranks


def _keeps_no_partners(self: Meetings, rows: Any, kept: Any, partners: Any) -> None:
    _keep(self, rows, kept, np.zeros_like(partners))


def _meets_who_comes_later(self: Meetings, latest_of: Any, earliest_of: Any) -> Any:
    earliest, latest = _met_by(self, latest_of, earliest_of)
    return earliest, np.full(len(latest), EVER_MS)


def _meets_a_row_of_the_last_ms(self: Meetings, latest_of: Any, earliest_of: Any) -> Any:
    earliest, latest = _met_by(self, latest_of, earliest_of)
    return earliest - 1, latest


def _expires_early(watermark_ms: int, keep_ms: int) -> int:
    return max(-EVER_MS, watermark_ms - keep_ms // 4)


def _unordered(self: OrderedChanges, cause: Any, batch: Any, kind: RowKind, time: Any) -> None:
    _add(self, np.zeros_like(cause), batch, kind, time)


def _all_at_once(row: Any, adds: Any) -> Any:
    return np.zeros(len(row), np.int64)


def _with_what_is_gone(self: SideRows) -> Any:
    return [replace(run, is_gone=None) for run in _frozen(self)]


def _the_first_of_equals(*arguments: Any) -> list[int]:
    return [-rank for rank in _ranks(*arguments)]


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("a row does not know of its first partners", [(Meetings, "_keep", _keeps_no_partners)]),
        Mutant("a row meets those that come after it", [(Meetings, "_met_by", _meets_who_comes_later)]),
        Mutant("a row is there when it expires", [(Meetings, "_met_by", _meets_a_row_of_the_last_ms)]),
        Mutant("rows expire too early", [(regular_join, "limit_of", _expires_early)]),
        Mutant("changes come in any order", [(OrderedChanges, "add", _unordered)]),
        Mutant("a batch is taken in one turn", [(regular_join, "_turns", _all_at_once)]),
        Mutant("what is gone is in the snapshot", [(SideRows, "frozen", _with_what_is_gone)]),
        Mutant("of equal rows the first goes", [(equal_rows, "_ranks", _the_first_of_equals)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_join_is_found(mutant: Mutant) -> None:
    def is_right() -> bool:
        try:
            for case, moves in PLAYS:
                play(case, moves)
        except AssertionError:
            return False
        return True

    assert is_right()
    with mutated(mutant):
        assert not is_right()
