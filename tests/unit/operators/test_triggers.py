"""Triggers by example: each rule alone. Together, against lists: properties/test_triggers.py."""

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from onceflow.runtime.errors import GraphError, OptionError, UserFunctionError
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.by_clock import processing_time
from onceflow.runtime.operators.assigners.counting import count_window
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.assigners.global_window import global_window
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.triggers.bounds import WindowBounds
from onceflow.runtime.operators.triggers.built_in import (
    at_processing_time,
    at_watermark,
    delta,
    every,
    every_processing_time,
    every_rows,
    purging,
)
from onceflow.runtime.operators.triggers.own import Trigger, TriggerCtx, TriggerResult
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.records import RowKind
from onceflow.runtime.state.handles import ListState, ValueState
from onceflow.runtime.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
INSERT, BEFORE, AFTER, DELETE = RowKind
CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = TriggerResult
ACCUMULATING, DISCARDING, RETRACTING = Results.ACCUMULATING, Results.DISCARDING, Results.RETRACTING


def config(window: Window, trigger: Any, results: Results = ACCUMULATING, lateness_ms: int = 0) -> Any:
    aggregates = {"n": count(), "total": sum_("amount")}
    firings = Firings(lateness_ms, results, trigger)
    return WindowAggregate("w", ("user",), window, aggregates, SCHEMA, firings=firings)


def harness(configured: Any, states: Any = None) -> OperatorHarness:
    return OperatorHarness(configured.create, ["user"], states=states)


def push(to: OperatorHarness, *rows: tuple[int, str, int | None]) -> None:
    """Rows of (event time, user, amount)."""
    named = [{"user": user, "amount": n} for _, user, n in rows]
    to.push(pa.RecordBatch.from_pylist(named, SCHEMA), [row[0] for row in rows])


def sent(by: OperatorHarness) -> list[tuple[Any, ...]]:
    """What has come out since the last call: (kind, user, [start, end,] n, total)."""
    found: list[tuple[Any, ...]] = []
    for _, records in by.out.emitted:
        kinds = [INSERT] * len(records) if records.kind is None else records.kind.tolist()
        found += [(k, *r.values()) for k, r in zip(kinds, records.batch.to_pylist(), strict=True)]
    by.out.emitted.clear()
    return found


def counts(by: OperatorHarness) -> list[int]:
    return [row[-2] for row in sent(by)]


def test_every_rows_fires_at_exactly_that_row_and_not_at_the_end() -> None:
    h = harness(config(tumbling(10), every_rows(2)))
    push(h, (0, "a", 1), (1, "a", 2), (2, "a", 4), (3, "b", 1))
    assert sent(h) == [(0, "a", 0, 10, 2, 3)]
    push(h, (4, "a", 8), (5, "a", 16), (6, "a", 32), (7, "a", 64))
    assert sent(h) == [(0, "a", 0, 10, 4, 15), (0, "a", 0, 10, 6, 63)]
    h.finish()
    assert sent(h) == []


def test_early_firings_come_before_the_one_at_the_watermark() -> None:
    h = harness(config(tumbling(10), at_watermark(early=every_rows(2))))
    push(h, (0, "a", 1), (1, "a", 2), (2, "a", 4))
    assert counts(h) == [2]
    h.advance(9)
    assert counts(h) == [3]


def test_an_early_result_is_taken_back_if_results_retract() -> None:
    h = harness(config(tumbling(10), at_watermark(early=every_rows(2)), RETRACTING))
    push(h, (0, "a", 1), (1, "a", 2), (2, "a", 4))
    assert sent(h) == [(INSERT, "a", 0, 10, 2, 3)]
    h.advance(9)
    assert sent(h) == [(BEFORE, "a", 0, 10, 2, 3), (AFTER, "a", 0, 10, 3, 7)]
    push(h, (10, "a", 1), (11, "a", 1))
    assert sent(h) == [(INSERT, "a", 10, 20, 2, 2)]
    h.advance(19)
    assert sent(h) == [], "nothing has come since"


def test_discarding_sends_what_is_new_and_purging_is_the_same() -> None:
    h = harness(config(tumbling(10), at_watermark(early=every_rows(2)), DISCARDING))
    push(h, (0, "a", 1), (1, "a", 2), (2, "a", 4))
    h.advance(9)
    assert counts(h) == [2, 1]
    push(h, (10, "a", 1), (11, "a", 1))
    h.advance(19)
    assert counts(h) == [2], "an empty window sends nothing"


def test_every_fires_at_multiples_of_event_time_if_rows_have_come() -> None:
    h = harness(config(tumbling(100), every(10)))
    push(h, (5, "a", 1), (12, "b", 1))
    h.advance(8)
    assert sent(h) == []
    h.advance(9)
    assert sent(h) == [(0, "a", 0, 100, 1, 1)]
    h.advance(50)
    assert sent(h) == [(0, "b", 0, 100, 1, 1)]
    push(h, (20, "a", 2))
    h.advance(58)
    assert sent(h) == [], "a row behind the watermark waits for the next multiple"
    h.advance(59)
    assert sent(h) == [(0, "a", 0, 100, 2, 3)]
    h.advance(99)
    assert counts(h) == [2, 1], "at the watermark once more"


def test_every_goes_on_after_a_restore_at_the_same_time() -> None:
    h = harness(config(tumbling(100), every(10)))
    push(h, (5, "a", 1))
    states = h.snapshot()
    h = harness(config(tumbling(100), every(10)), states)
    h.advance(9)
    assert counts(h) == [1]
    states = h.snapshot()
    h = harness(config(tumbling(100), every(10)), states)
    h.advance(9)
    assert counts(h) == [], "it was sent before the checkpoint"
    h.finish()
    assert counts(h) == [1]


@pytest.mark.parametrize("trigger", [every(10), at_watermark(early=every(10))])
def test_what_is_due_fires_before_a_row_changes_its_window_after_a_restore_too(trigger: Any) -> None:
    h = harness(config(tumbling(100), trigger))
    push(h, (5, "a", 1))
    h.begin(9)
    states = h.snapshot()
    push(h, (6, "a", 1))
    assert counts(h) == [1]
    h = harness(config(tumbling(100), trigger), states)
    push(h, (6, "a", 1))
    assert counts(h) == [1]
    h.advance(9)
    assert counts(h) == []
    h.advance(19)
    assert counts(h) == [2]


def test_every_processing_time_fires_by_the_clock() -> None:
    h = harness(config(tumbling(100), every_processing_time(10)))
    now = int(h.clock.now_ms())
    push(h, (5, "a", 1))
    h.tick(10 - now % 10 - 1)
    assert counts(h) == []
    h.tick(1)
    assert counts(h) == [1]
    h.tick(100)
    assert counts(h) == [], "no row has come"
    push(h, (6, "a", 1))
    h = harness(config(tumbling(100), every_processing_time(10)), h.snapshot())
    h.tick(h.clock.now_ms() + 1e6)
    assert counts(h) == [2]


def test_by_the_clock_what_is_left_is_sent_when_the_input_ends() -> None:
    h = harness(config(global_window(), every_processing_time(10)))
    push(h, (5, "a", 1))
    h.finish()
    assert counts(h) == [1]


def test_at_processing_time_fires_when_the_clock_shows_the_end() -> None:
    h = harness(config(tumbling(100), at_processing_time()))
    push(h, (5, "a", 1))
    h.tick(99)
    assert counts(h) == []
    h.tick(1)
    assert counts(h) == [1]


def test_delta_fires_when_a_value_has_moved() -> None:
    for trigger in (delta("amount", 5), delta(pl.col("amount") * 2, 10)):
        h = harness(config(global_window(), trigger))
        push(h, (0, "a", 10), (1, "a", 15), (2, "a", None), (3, "a", 16), (4, "a", 12))
        assert counts(h) == [4]
        h = harness(config(global_window(), trigger), h.snapshot())
        push(h, (5, "a", 11), (6, "a", 10), (7, "b", 99))
        assert counts(h) == [7]


def test_a_global_window_sends_no_bounds_and_the_time_of_the_row_that_fired_it() -> None:
    h = harness(config(global_window(), every_rows(2)))
    push(h, (7, "a", 1), (3, "a", 2), (4, "a", 4))
    [(_, records)] = h.out.emitted
    assert records.event_time is not None
    assert records.event_time.tolist() == [3]
    assert sent(h) == [(0, "a", 2, 3)]


def test_a_global_window_goes_by_event_time_too_and_ends_with_the_input() -> None:
    h = harness(config(global_window(), every(10)))
    push(h, (7, "a", 1))
    h.advance(9)
    push(h, (12, "a", 1))
    h.finish()
    assert counts(h) == [1, 2]


def test_a_global_window_that_is_purged_leaves_nothing_behind() -> None:
    h = harness(config(global_window(), every_rows(1), DISCARDING))
    for n in range(3):
        push(h, *[(n, f"user {u}", 1) for u in range(1500)])
    h.snapshot()
    [state] = h.snapshot()
    assert not any(state.batches("spans"))


def test_sessions_add_up_what_a_trigger_has_counted() -> None:
    h = harness(config(session(10), every_rows(4), RETRACTING))
    push(h, (0, "a", 1), (1, "a", 2), (30, "a", 4))
    push(h, (20, "a", 8))
    assert sent(h) == []
    push(h, (11, "a", 16))
    assert sent(h) == [(INSERT, "a", 0, 40, 5, 31)]
    push(h, (45, "a", 1), (46, "a", 1), (47, "a", 1))
    assert sent(h) == []
    push(h, (39, "a", 1))
    assert sent(h) == [(DELETE, "a", 0, 40, 5, 31), (INSERT, "a", 0, 57, 9, 35)]


def test_late_rows_fire_at_once_and_are_taken_back_from_what_was_sent() -> None:
    h = harness(config(tumbling(10), at_watermark(early=every_rows(2)), RETRACTING, 20))
    push(h, (0, "a", 1), (1, "a", 2))
    h.advance(9)
    assert counts(h) == [2]
    push(h, (2, "a", 4), (3, "a", 8))
    assert sent(h) == [(BEFORE, "a", 0, 10, 2, 3), (AFTER, "a", 0, 10, 4, 15)]
    h.advance(29)
    push(h, (4, "a", 1))
    assert sent(h) == []
    assert h.late_rows == 1
    assert not any(h.snapshot()[0].batches("spans"))


def test_late_rows_wait_for_their_own_trigger_and_at_most_until_the_window_goes() -> None:
    h = harness(config(tumbling(10), at_watermark(late=every_rows(3)), DISCARDING, 20))
    push(h, (0, "a", 1))
    h.advance(9)
    assert counts(h) == [1]
    push(h, (1, "a", 2), (2, "a", 4))
    assert sent(h) == []
    push(h, (3, "a", 8), (4, "a", 16), (5, "b", 1))
    assert sent(h) == [(0, "a", 0, 10, 3, 14)]
    h.advance(28)
    assert sent(h) == []
    h.advance(29)
    assert sorted(sent(h)) == [(0, "a", 0, 10, 1, 16), (0, "b", 0, 10, 1, 1)]
    assert not any(h.snapshot()[0].batches("spans"))


def test_late_rows_fire_at_an_interval_of_event_time_or_of_the_clock() -> None:
    h = harness(config(tumbling(10), at_watermark(early=every_rows(5), late=every(5)), ACCUMULATING, 20))
    push(h, (0, "a", 1))
    h.advance(10)
    push(h, (1, "a", 2))
    push(h, (2, "a", 4))
    h.advance(13)
    assert counts(h) == [1]
    h.advance(14)
    assert counts(h) == [3]
    h = harness(config(tumbling(10), at_watermark(late=every_processing_time(5)), ACCUMULATING, 20))
    push(h, (0, "a", 1))
    h.advance(10)
    push(h, (1, "a", 2))
    push(h, (2, "a", 4))
    h.tick(4)
    assert counts(h) == [1]
    h.tick(1)
    assert counts(h) == [3]
    h.finish()
    assert sent(h) == []


def test_a_session_that_goes_on_before_its_late_rows_were_sent_fires_when_it_ends() -> None:
    h = harness(config(session(10), at_watermark(late=every_processing_time(5)), RETRACTING, 20))
    push(h, (0, "a", 1))
    h.advance(12)
    assert sent(h) == [(INSERT, "a", 0, 10, 1, 1)]
    push(h, (1, "a", 2))
    push(h, (9, "a", 4))
    h.tick(9)
    assert sent(h) == []
    h.advance(18)
    assert sent(h) == [(DELETE, "a", 0, 10, 1, 1), (INSERT, "a", 0, 19, 3, 7)]


def test_windows_by_the_clock_take_triggers_too() -> None:
    h = harness(config(processing_time(tumbling(100)), every(10)))
    push(h, (0, "a", 1))
    h.tick(10)
    assert counts(h) == [1]
    push(h, (0, "a", 1))
    h.tick(100)
    assert counts(h) == [2]
    h = harness(config(processing_time(tumbling(100)), every_rows(2)))
    push(h, (0, "a", 1), (0, "a", 1), (0, "a", 1))
    h.tick(100)
    assert counts(h) == [2]
    h.tick(1)
    assert h.subtasks[0].wake_at_ms is None  # type: ignore[attr-defined]  # of a ClockOperator


def test_reduce_takes_a_trigger() -> None:
    def add(one: Any, other: Any) -> Any:
        return other._replace(amount=one.amount + other.amount)

    firings = Firings(0, RETRACTING, at_watermark(early=every_rows(2)))
    h = harness(WindowReduce("w", ("user",), tumbling(10), add, SCHEMA, firings=firings))
    push(h, (0, "a", 1), (1, "a", 2), (2, "a", 4))
    h.finish()
    assert sent(h) == [(INSERT, "a", 3), (BEFORE, "a", 3), (AFTER, "a", 7)]


class Own(Trigger[Any]):
    """Fires with the third row of a window, 5 ms after its first, and 3 ms of the clock after that."""

    seen = ValueState("seen", int)
    amounts = ListState("amounts", int)

    def on_element(
        self, element: Any, timestamp: int | None, window: WindowBounds, ctx: TriggerCtx
    ) -> TriggerResult:
        assert timestamp is not None
        seen = (self.seen.get() or 0) + 1
        self.seen.set(seen)
        self.amounts.add(element.amount)
        if seen == 1:
            ctx.timers.event_time(timestamp + 5)
        return FIRE if seen % 3 == 0 else CONTINUE

    def on_event_time(self, time: int, window: WindowBounds, ctx: TriggerCtx) -> TriggerResult:
        ctx.timers.processing_time(int(ctx.processing_time) + 3)
        return FIRE

    def on_processing_time(self, time: int, window: WindowBounds, ctx: TriggerCtx) -> TriggerResult:
        return FIRE_AND_PURGE

    def on_merge(self, window: WindowBounds, ctx: TriggerCtx) -> None:
        self.seen.set(sum(ctx.merged(self.seen)))
        self.amounts.update(amount for amounts in ctx.merged(self.amounts) for amount in amounts)
        ctx.timers.event_time(window.start + 5)


def test_a_trigger_of_the_users_has_state_and_timers_for_each_window() -> None:
    h = harness(config(tumbling(100), Own()))
    push(h, (0, "a", 1), (1, "a", 2), (2, "a", 4), (3, "b", 1), (4, "a", 8))
    assert sent(h) == [(0, "a", 0, 100, 3, 7)]
    h = harness(config(tumbling(100), Own()), h.snapshot())
    h.advance(5)
    assert sent(h) == [(0, "a", 0, 100, 4, 15)]
    h.tick(2)
    assert sent(h) == []
    h = harness(config(tumbling(100), Own()), h.snapshot())
    h.tick(1e7)
    assert sent(h) == [(0, "a", 0, 100, 4, 15)]
    push(h, (6, "a", 1), (7, "a", 2))
    assert sent(h) == [(0, "a", 0, 100, 2, 3)], "it was purged, and its trigger counts on"
    h.finish()
    assert sent(h) == [(0, "b", 0, 100, 1, 1)]
    assert not any(h.snapshot()[0].batches("spans"))


def test_a_trigger_of_the_users_is_asked_when_sessions_merge() -> None:
    h = harness(config(session(10), Own(), RETRACTING))
    push(h, (20, "a", 1), (22, "a", 2), (0, "a", 4))
    assert sent(h) == []
    push(h, (10, "a", 8))
    assert sent(h) == []
    push(h, (12, "a", 8), (13, "a", 16))
    assert sent(h) == [(INSERT, "a", 0, 32, 6, 39)]
    push(h, (14, "a", 1))
    h.advance(5)
    assert sent(h) == [(BEFORE, "a", 0, 32, 6, 39), (AFTER, "a", 0, 32, 7, 40)]


def test_what_a_trigger_returns_is_checked_and_what_it_raises_is_told() -> None:
    class Nothing(Own):
        def on_element(self, element: Any, *_: Any) -> Any:
            return None

    class Fails(Own):
        def on_event_time(self, time: int, *_: Any) -> Any:
            raise ValueError("no")

    h = harness(config(tumbling(10), Nothing()))
    with pytest.raises(UserFunctionError, match=r"on_element returned None: return a TriggerResult"):
        push(h, (0, "a", 1))
    h = harness(config(tumbling(10), Fails()))
    push(h, (0, "a", 1))
    with pytest.raises(
        UserFunctionError, match=r"the timer at 5 of the window .* of key 'a'.*ValueError: no"
    ):
        h.advance(5)


class Mergeless(Trigger[Any]):
    def on_element(self, *_: Any) -> TriggerResult:
        return CONTINUE


@pytest.mark.parametrize(
    ("window", "trigger", "sentence"),
    [
        (global_window(), None, "never ends, so it would never send anything"),
        (global_window(), at_watermark(every_rows(3)), "has no end to fire at"),
        (tumbling(3), at_watermark(late=every_rows(3)), "is for late rows, and no window takes any"),
        (global_window(), at_processing_time(), "has no end to fire at"),
        (count_window(3), every_rows(3), "count_window fires by its rows"),
        (session(3), delta("amount", 1), "can't be told for sessions"),
        (tumbling(3), delta("user", 1), r"delta\(user\) is string: give a number"),
        (tumbling(3), delta("amuont", 1), "there is no column 'amuont'"),
        (session(3), Mergeless(), r"Mergeless has no on_merge\(self, window, ctx\)"),
    ],
)
def test_a_window_that_cant_have_the_trigger_is_refused(window: Any, trigger: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        config(window, trigger)


def test_a_trigger_that_is_none_is_refused() -> None:
    for wrong in (
        lambda: every_rows(0),
        lambda: every("0 s"),
        lambda: every_processing_time("x"),
        lambda: delta("amount", -1),
        lambda: delta(5, 1),  # type: ignore[arg-type]
        lambda: at_watermark(early=purging(every_rows(3))),
        lambda: at_watermark(early=at_watermark(late=every_rows(3))),
        lambda: at_watermark(late=delta(pl.col("amount"), 1)),
        lambda: at_watermark(late=at_watermark(early=every_rows(3))),
        lambda: at_watermark(late=purging(every_rows(3))),
        lambda: at_watermark(late=Own()),  # type: ignore[arg-type]
        lambda: purging(Own()),  # type: ignore[arg-type]
    ):
        with pytest.raises(OptionError):
            wrong()
