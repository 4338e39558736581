"""A regular join as nested loops that take rows one by one, and the operator beside it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns
from onceflow.runtime.operators.joins.regular_join import RegularJoin
from onceflow.runtime.records import WATERMARK_MIN_MS, RowKind
from onceflow.runtime.state.description import TimeToLive
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import OperatorHarness

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
    def __init__(self, case: Case, state: StateBackend = UNLIMITED) -> None:
        self.state = state
        self.case, self.model, self.clock = case, Model(case), ManualClock()
        self.watermark = WATERMARK_MIN_MS
        self.harness = self.make(2)
        self.sent = 0
        self.result: Counter[tuple[Any, ...]] = Counter()

    def make(self, parallelism: int, states: Any = None) -> OperatorHarness:
        create = self.case.config().create
        keys = ("id",), ("ref",)
        state = UNLIMITED if parallelism == 3 else self.state  # a savepoint may go to the other backend
        return OperatorHarness(
            create, keys[0], parallelism, 8, states, self.clock, right_keys=keys[1], state=state
        )

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


def play(case: Case, moves: Sequence[tuple[str, Any]], state: StateBackend = UNLIMITED) -> Play:
    run = Play(case, state)
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
