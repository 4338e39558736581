"""Windows with triggers, against naive lists of rows that are gone through one by one.

Rows out of order, any batches, watermarks that fire in pieces, the clock, late rows, snapshots in the middle
of that, restores at another parallelism; triggers that there are, and the same written as a Trigger.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.cumulative import Cumulative
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.triggers.bounds import WindowBounds
from onceflow.runtime.operators.triggers.built_in import (
    BuiltInTrigger,
    at_watermark,
    delta,
    every,
    every_processing_time,
    every_rows,
)
from onceflow.runtime.operators.triggers.own import Trigger, TriggerCtx, TriggerResult
from onceflow.runtime.operators.windows.late_firings import LateFirings
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import RowKind
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of, subtask_of_key_group
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
MIN_MS, MAX_MS = -(1 << 63), (1 << 63) - 1
CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE


class OwnTrigger(Trigger[Any]):
    """What built-in triggers of rows, intervals and the end do, as a user would write it."""

    seen = ValueState("seen", int)
    next_ms = ValueState("next", int)
    is_over = ValueState("over", bool)

    def __init__(self, of: BuiltInTrigger, is_global: bool) -> None:
        self.of = of
        self.at_end = of.at_end and not is_global

    def on_element(
        self, element: Any, timestamp: int | None, window: WindowBounds, ctx: TriggerCtx
    ) -> TriggerResult:
        assert timestamp is not None
        if self.at_end and window.max_timestamp <= ctx.watermark:
            return FIRE
        if self.at_end:
            ctx.timers.event_time(window.max_timestamp)
        if self.of.every_ms is not None:
            before = self.next_ms.get()
            self._expect(timestamp, ctx, MAX_MS if before is None else before)
        if self.of.rows is None:
            return CONTINUE
        seen = (self.seen.get() or 0) + 1
        self.seen.set(0 if seen >= self.of.rows else seen)
        return FIRE if seen >= self.of.rows else CONTINUE

    def _expect(self, timestamp: int, ctx: TriggerCtx, before: int) -> None:
        interval = self.of.every_ms or 1
        at_ms = (max(timestamp, ctx.watermark + 1) // interval + 1) * interval - 1
        if at_ms < before:
            ctx.timers.delete_event_time(before)
            ctx.timers.event_time(at_ms)
            self.next_ms.set(at_ms)

    def on_event_time(self, time: int, window: WindowBounds, ctx: TriggerCtx) -> TriggerResult:
        self.next_ms.clear()
        return FIRE

    def on_merge(self, window: WindowBounds, ctx: TriggerCtx) -> None:
        self.seen.set(sum(ctx.merged(self.seen)))
        if times := ctx.merged(self.next_ms):
            self.next_ms.set(min(times))
            ctx.timers.event_time(min(times))


@dataclass(eq=False)
class NaiveWindow:
    start: int
    end: int
    rows: list[Any] = field(default_factory=list)
    seen: int = 0
    early: int | None = None
    clock: int | None = None
    anchor: int | None = None
    unsent: int = 0
    late: int | None = None
    late_clock: int | None = None
    has_ended: bool = False
    is_changed: bool = False
    sent: tuple[Any, ...] | None = None


class Naive:
    """Lists of windows by key."""

    def __init__(self, window: Any, firings: Firings, clock: ManualClock) -> None:
        self.window = window
        self.firings = firings
        trigger = firings.trigger
        assert isinstance(trigger, BuiltInTrigger)
        self.trigger = trigger
        self.is_global = isinstance(window, GlobalWindow)
        self.at_end = trigger.at_end and not self.is_global
        self.clock = clock
        self.windows: dict[Any, list[NaiveWindow]] = defaultdict(list)
        self.sent: list[tuple[RowKind, tuple[Any, ...]]] = []
        self.late = 0

    def push(self, rows: list[Any], passed: Any) -> None:
        for key in dict.fromkeys(row[1] for row in rows):
            self.push_key(key, [row for row in rows if row[1] == key], passed(key))

    def push_key(self, key: Any, rows: list[Any], passed_ms: int) -> None:
        groups: list[tuple[NaiveWindow, list[NaiveWindow], set[int]]] = [
            (NaiveWindow(w.start, w.end), [w], set()) for w in self.windows[key] if self.is_open(w, passed_ms)
        ]
        for n, row in enumerate(rows):
            groups += [(NaiveWindow(*span), [], {n}) for span in self.spans(row[0])]
        while (pair := self.pair_to_join(groups)) is not None:
            (one, parts, mine), (other, more, others) = (groups[n] for n in pair)
            groups = [group for n, group in enumerate(groups) if n not in pair]
            bounds = min(one.start, other.start), max(one.end, other.end)
            groups.append((NaiveWindow(*bounds), parts + more, mine | others))
        groups = [g for g in groups if g[2] and self.is_open(g[0], passed_ms)]
        for whole, parts, _ in groups:
            self.join(key, whole, parts)
        for n, row in enumerate(rows):
            self.late += not any(n in mine for _, _, mine in groups)
            for window, _, mine in groups:
                if n in mine:
                    is_last = n == max(mine)
                    self.add(key, window, row, passed_ms, is_last)

    def join(self, key: Any, whole: NaiveWindow, parts: list[NaiveWindow]) -> None:
        parts.sort(key=lambda part: (part.start, self.windows[key].index(part)))
        for number, part in enumerate(parts):
            self.windows[key].remove(part)
            whole.rows += part.rows
            whole.seen += part.seen
            whole.early = min((t for t in (whole.early, part.early) if t is not None), default=None)
            whole.clock = min((t for t in (whole.clock, part.clock) if t is not None), default=None)
            whole.late = min((t for t in (whole.late, part.late) if t is not None), default=None)
            whole.late_clock = min((t for t in (whole.late_clock, part.late_clock) if t), default=None)
            whole.unsent += part.unsent
            whole.anchor = part.anchor
            whole.is_changed |= part.is_changed
            if number == 0:
                whole.sent = part.sent
            elif part.sent is not None and self.firings.has_kinds:
                self.sent.append((RowKind.DELETE, part.sent))
        self.windows[key].append(whole)

    def add(self, key: Any, window: NaiveWindow, row: Any, passed_ms: int, is_last: bool) -> None:
        window.rows.append(row)
        window.is_changed = True
        window.has_ended = False
        trigger, fires = self.trigger, False
        if self.at_end and window.end - 1 <= passed_ms:
            if is_last or trigger.late is not None:
                window.has_ended, window.early, window.clock = True, None, None
            if trigger.late is not None:
                self.add_late(key, window, trigger.late, passed_ms)
            elif is_last:
                self.fire_one(key, window)
            return
        window.unsent, window.late, window.late_clock = 0, None, None
        if trigger.rows is not None:
            window.seen = min(window.seen, trigger.rows - 1) + 1
            fires = window.seen == trigger.rows
            window.seen %= trigger.rows
        if trigger.delta is not None and row[2] is not None:
            if window.anchor is None:
                window.anchor = row[2]
            elif abs(row[2] - window.anchor) > trigger.threshold:
                window.anchor, fires = row[2], True
        if trigger.every_ms is not None:
            at_ms = (max(row[0], passed_ms + 1) // trigger.every_ms + 1) * trigger.every_ms - 1
            window.early = at_ms if window.early is None else min(window.early, at_ms)
        if trigger.every_clock_ms is not None and window.clock is None:
            interval = trigger.every_clock_ms
            window.clock = (int(self.clock.now_ms()) // interval + 1) * interval
        if fires:
            self.fire_one(key, window)

    def add_late(self, key: Any, window: NaiveWindow, late: BuiltInTrigger, passed_ms: int) -> None:
        window.unsent += 1
        if late.rows is not None and window.unsent >= late.rows:
            self.fire_one(key, window)
        if late.every_ms is not None:
            at_ms = ((passed_ms + 1) // late.every_ms + 1) * late.every_ms - 1
            window.late = min(at_ms, MAX_MS if window.late is None else window.late)
        if late.every_clock_ms is not None and window.late_clock is None:
            interval = late.every_clock_ms
            window.late_clock = (int(self.clock.now_ms()) // interval + 1) * interval

    def fire(self, passed: Any, is_end: bool = False) -> None:
        for key, windows in self.windows.items():
            for window in windows:
                ends = self.at_end and not window.has_ended and window.end - 1 <= passed(key)
                ends |= window.unsent > 0 and not self.is_open(window, passed(key))
                ends |= window.late is not None and window.late <= passed(key)
                if ends or (window.early is not None and window.early <= passed(key)):
                    window.early = None
                    window.has_ended |= window.end - 1 <= passed(key)
                    self.fire_one(key, window)
        if is_end:
            self.tick(MAX_MS)
        for key, windows in self.windows.items():
            windows[:] = [w for w in windows if self.is_open(w, passed(key))]

    def tick(self, now_ms: int) -> None:
        for key, windows in self.windows.items():
            for window in windows:
                times = [ms for ms in (window.clock, window.late_clock) if ms is not None]
                if times and min(times) <= now_ms:
                    window.clock = None
                    self.fire_one(key, window)

    def fire_one(self, key: Any, window: NaiveWindow) -> None:
        window.unsent, window.late, window.late_clock = 0, None, None
        retracts = self.firings.results is Results.RETRACTING
        if not window.rows or (retracts and window.sent is not None and not window.is_changed):
            return
        amounts = [row[2] for row in window.rows if row[2] is not None]
        bounds = () if self.is_global else (window.start, window.end)
        result = (key, *bounds, len(window.rows), sum(amounts) if amounts else None)
        is_update = retracts and window.sent is not None and window.sent[: 1 + len(bounds)] == result[:-2]
        if retracts and window.sent is not None:
            self.sent.append((RowKind.UPDATE_BEFORE if is_update else RowKind.DELETE, window.sent))
        self.sent.append((RowKind.UPDATE_AFTER if is_update else RowKind.INSERT, result))
        window.sent, window.is_changed = result, False
        if self.firings.results is Results.DISCARDING:
            window.rows, window.sent = [], None

    def is_open(self, window: NaiveWindow, passed_ms: int) -> bool:
        return passed_ms < MAX_MS if self.is_global else window.end - 1 + self.firings.lateness_ms > passed_ms

    def spans(self, t: int) -> list[tuple[int, int]]:
        match self.window:
            case GlobalWindow():
                return [(MIN_MS, MAX_MS)]
            case Session(gap_ms=gap_ms):
                return [(t, t + gap_ms)]
            case Cumulative(size_ms=size, step_ms=step):
                start = t // size * size
                return [(start, end) for end in range(start + step, start + size + 1, step) if end > t]
            case Tumbling(size_ms=size) | Sliding(size_ms=size) as window:
                slide = window.slide_ms
                return [(e - size, e) for e in range(t + 1, t + size + 1) if (e - size) % slide == 0]
            case other:
                raise AssertionError(other)

    def pair_to_join(self, groups: list[Any]) -> tuple[int, int] | None:
        for i, (one, *_) in enumerate(groups):
            for j, (other, *_) in enumerate(groups[:i]):
                touches = one.start <= other.end and other.start <= one.end
                is_same = (one.start, one.end) == (other.start, other.end)
                if touches if isinstance(self.window, Session) else is_same:
                    return j, i
        return None


class Run:
    """The real operator, and how far event time was where the state of each key group lives."""

    def __init__(self, configured: WindowAggregate, state: StateBackend) -> None:
        self.configured = configured
        self.state = state
        self.clock = ManualClock()
        self.harness = OperatorHarness(configured.create, ["user"], 2, clock=self.clock, state=state)
        self.floor: dict[int, int] = {}
        self.watermarks = [MIN_MS] * 2
        self.late_rows = 0
        self.sent: list[tuple[RowKind, tuple[Any, ...]]] = []

    def collect(self) -> None:
        for _, records in self.harness.out.emitted:
            rows = [tuple(row.values()) for row in records.batch.to_pylist()]
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

    def begin(self, time_ms: int, pieces: int | None) -> None:
        """The watermark, of which so many pieces fire now."""
        while self.harness.fire(2):
            pass
        self.watermarks = [max(watermark, time_ms) for watermark in self.watermarks]
        for operator, watermark in zip(self.harness.subtasks, self.watermarks, strict=True):
            operator.on_watermark(watermark)
        while pieces is None and self.harness.fire(2):
            pass
        for _ in range(pieces or 0):
            self.harness.fire(1)

    def restore(self, parallelism: int) -> None:
        for group in range(128):
            subtask = subtask_of_key_group(128, len(self.watermarks), group)
            self.floor[group] = max(self.floor.get(group, MIN_MS), self.watermarks[subtask])
        states = self.harness.snapshot()
        self.harness.push(as_batch([(1, "a", 5), (50, "b", 5)]), [1, 50])
        self.harness.finish()  # what happens after the snapshot is lost in the crash
        state = UNLIMITED if parallelism == 2 else self.state  # a savepoint may go to the other backend
        self.harness = OperatorHarness(
            self.configured.create, ["user"], parallelism, states=states, clock=self.clock, state=state
        )
        self.watermarks = [MIN_MS] * parallelism


def as_batch(rows: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"user": row[1], "amount": row[2]} for row in rows], SCHEMA)


def of_window(sent: list[tuple[RowKind, tuple[Any, ...]]]) -> dict[Any, list[Any]]:
    """What was sent, window by window, in order."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for kind, row in sent:
        found[row[:-2]].append((kind, row))
    return found


ROW = st.tuples(st.integers(-20, 50), st.sampled_from("abä"), st.none() | st.integers(-20, 20))
ROWS = st.tuples(st.just("rows"), st.lists(ROW, min_size=1, max_size=8))
STEP = st.one_of(
    ROWS,
    ROWS,
    st.tuples(st.just("watermark"), st.tuples(st.integers(-30, 80), st.sampled_from([None, None, 0, 1, 3]))),
    st.tuples(st.just("tick"), st.integers(1, 12)),
    st.tuples(st.just("restore"), st.integers(1, 3)),
)
WINDOW = st.one_of(
    st.builds(Tumbling, st.integers(1, 30)),
    st.builds(lambda slide, more: Sliding(slide + more, slide), st.integers(2, 12), st.integers(1, 12)),
    st.builds(lambda step, steps: Cumulative(step * steps, step), st.integers(2, 9), st.integers(2, 4)),
    st.builds(Session, st.integers(1, 15)),
    st.just(GlobalWindow()),
)
EARLY = st.one_of(
    st.builds(every_rows, st.integers(1, 4)),
    st.builds(every, st.integers(1, 12)),
    st.builds(every_processing_time, st.integers(1, 9)),
    st.builds(lambda threshold: delta("amount", threshold), st.integers(0, 15)),
)


LATE = st.one_of(
    st.none(),
    st.builds(every_rows, st.integers(1, 4)),
    st.builds(every, st.integers(1, 12)),
    st.builds(every_processing_time, st.integers(1, 9)),
)

DRAWN: dict[str, Any] = {
    "steps": st.lists(STEP, max_size=12),
    "window": WINDOW,
    "early": EARLY,
    "late": LATE,
    "is_at_end": st.booleans(),
    "lateness_ms": st.sampled_from([0, 0, 7, 20]),
    "results": st.sampled_from(Results),
    "is_own": st.booleans(),
}


WAITS = [("rows", [(0, "a", 1)]), ("watermark", (12, None)), ("rows", [(1, "a", 2)])]
GOES_ON: dict[str, Any] = {
    "steps": [
        *WAITS,
        ("rows", [(9, "a", 4)]),
        ("tick", 9),
        ("watermark", (25, None)),
        ("rows", [(8, "a", 8)]),
    ],
    "window": Session(10),
    "early": every_rows(4),
    "late": every_processing_time(5),
    "is_at_end": True,
    "lateness_ms": 20,
    "results": Results.RETRACTING,
    "is_own": False,
}
"""A session with a late row that waits for the clock goes on before the clock has come so far."""


@settings(max_examples=120, deadline=None)
@example(**GOES_ON)
@example(**{**GOES_ON, "late": every(12)})
@example(**{**GOES_ON, "late": every_rows(3)})
@given(**DRAWN)
def test_triggers_agree_with_naive_lists(**drawn: Any) -> None:
    check_run(state=UNLIMITED, **drawn)


def lose_late_rows(self: LateFirings, *_: Any) -> None:
    """What sessions that become one have not sent is not counted."""


def wait_for_rows_only(self: LateFirings, rows: Any, ends: Any) -> Any:
    """What is left when the lateness ends is not sent."""
    return ends * 0 + MAX_MS


MERGES = [("rows", [(0, "a", 1), (12, "a", 1)]), ("watermark", (24, None)), ("rows", [(1, "a", 1)])]
MERGES += [("rows", [(t, "a", 1)]) for t in (13, 11, 6)]


@pytest.mark.parametrize(("method", "by"), [("merge", lose_late_rows), ("event_ms", wait_for_rows_only)])
def test_mutant_is_killed(method: str, by: Any) -> None:
    run = {**GOES_ON, "steps": MERGES, "late": every_rows(3)}
    check_run(**run, state=UNLIMITED)
    with mutated(Mutant("late rows are lost", [(LateFirings, method, by)])), pytest.raises(AssertionError):
        check_run(**run, state=UNLIMITED)


@settings(max_examples=40, deadline=None)
@given(**DRAWN)
def test_triggers_whose_snapshots_build_on_each_other_agree_with_naive_lists(**drawn: Any) -> None:
    check_run(state=INCREMENTAL, **drawn)


@settings(max_examples=40, deadline=None)
@given(**DRAWN)
def test_triggers_of_windows_in_rocksdb_agree_with_naive_lists(**drawn: Any) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check_run(state=state, **drawn)


def check_run(
    steps: list[Any],
    window: Any,
    early: BuiltInTrigger,
    late: BuiltInTrigger | None,
    is_at_end: bool,
    lateness_ms: int,
    results: Results,
    is_own: bool,
    state: StateBackend,
) -> None:
    is_global = isinstance(window, GlobalWindow)
    if isinstance(window, Session) and early.delta is not None:
        early = every_rows(3)
    trigger = at_watermark(early, late if lateness_ms else None) if is_at_end and not is_global else early
    is_own &= trigger.delta is None and trigger.every_clock_ms is None
    # A trigger of the user's is asked for each late row; of a batch's a built-in one makes one firing.
    is_own &= not (trigger.at_end and lateness_ms)
    # Each of its timers that a watermark passes fires, where a built-in one fires once.
    is_own &= trigger.every_ms is None or results is not Results.ACCUMULATING
    own = OwnTrigger(trigger, is_global) if is_own else trigger
    firings = Firings(0 if is_global else lateness_ms, results, own)
    aggregates = {"n": count(), "total": sum_("amount")}
    run = Run(WindowAggregate("w", ("user",), window, aggregates, SCHEMA, firings=firings), state)
    naive = Naive(window, Firings(firings.lateness_ms, results, trigger), run.clock)
    for kind, value in [*steps, ("watermark", (MAX_MS, None))]:
        match kind:
            case "rows":
                naive.push(value, run.passed)
                run.harness.push(as_batch(value), [row[0] for row in value])
            case "watermark":
                time_ms, pieces = value
                run.begin(time_ms, None if "clock" in trigger.title else pieces)
                naive.fire(run.passed, time_ms == MAX_MS)
            case "tick":
                run.harness.tick(value)
                naive.tick(int(run.clock.now_ms()))
            case "restore":
                run.collect()
                run.restore(value)
        run.collect()
    assert of_window(run.sent) == of_window(naive.sent)
    assert run.late_rows == naive.late
    assert not any(run.harness.snapshot()[0].batches("spans")), "nothing stays when all has passed"
    assert all(n >= 0 for n in Counter(run.sent).values())
