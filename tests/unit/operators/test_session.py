"""Session windows and allowed lateness, by example: each rule alone. Together: properties/test_spans.py."""

from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from onceflow.runtime.errors import Fatal, GraphError, OptionError, UserFunctionError
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.firings import ONCE, Firings, Results
from onceflow.runtime.operators.assigners.session import Session, session
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.records import RowKind
from onceflow.runtime.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("pause", pa.duration("us"))])
INSERT, BEFORE, AFTER, DELETE = RowKind


def config(window: Window, firings: Firings = ONCE, late: bool = False) -> WindowAggregate:
    aggregates = {"n": count(), "total": sum_("amount")}
    return WindowAggregate("w", ("user",), window, aggregates, SCHEMA, late, None, firings)


def harness(configured: WindowAggregate | WindowReduce, states: Any = None) -> OperatorHarness:
    return OperatorHarness(configured.create, ["user"], states=states)


def push(to: OperatorHarness, *rows: tuple[int, str, int]) -> None:
    """Rows of (event time, user, amount); the pause is as many ms as the amount."""
    named = [{"user": user, "amount": n, "pause": timedelta(milliseconds=n)} for _, user, n in rows]
    to.push(pa.RecordBatch.from_pylist(named, SCHEMA), [row[0] for row in rows])


def sent(by: OperatorHarness) -> list[tuple[Any, ...]]:
    """What has come out since the last call: (kind, user, start, end, n, total)."""
    found: list[tuple[Any, ...]] = []
    for _, records in by.out.emitted:
        kinds = [INSERT] * len(records) if records.kind is None else records.kind.tolist()
        found += [(k, *r.values()) for k, r in zip(kinds, records.batch.to_pylist(), strict=True)]
    by.out.emitted.clear()
    return found


def test_rows_without_a_gap_between_them_are_one_session_in_whatever_order_they_come() -> None:
    h = harness(config(session(10)))
    push(h, (20, "a", 1), (0, "a", 2), (100, "a", 8))
    push(h, (10, "a", 4), (12, "b", 1))
    h.finish()
    assert sorted(sent(h)) == [(0, "a", 0, 30, 3, 7), (0, "a", 100, 110, 1, 8), (0, "b", 12, 22, 1, 1)]


def test_sessions_exactly_a_gap_apart_are_one_and_a_millisecond_more_makes_two() -> None:
    h = harness(config(session(10)))
    push(h, (0, "a", 1), (10, "a", 1), (21, "a", 1))
    h.finish()
    assert sent(h) == [(0, "a", 0, 20, 2, 2), (0, "a", 21, 31, 1, 1)]


def test_a_session_fires_when_the_watermark_reaches_its_last_millisecond() -> None:
    h = harness(config(session(10)))
    push(h, (0, "a", 1))
    h.advance(8)
    assert sent(h) == []
    h.advance(9)
    assert sent(h) == [(0, "a", 0, 10, 1, 1)]


def test_an_old_row_that_joins_a_session_that_goes_on_is_not_late() -> None:
    h = harness(config(session(10), late=True))
    push(h, (0, "a", 1), (8, "a", 2), (16, "a", 4))
    h.advance(20)
    push(h, (2, "a", 8), (2, "b", 1))
    assert h.rows("late") == [{"user": "b", "amount": 1, "pause": timedelta(milliseconds=1)}]
    assert h.late_rows == 1
    h.out.emitted.clear()
    h.finish()
    assert sent(h) == [(0, "a", 0, 26, 4, 15)]


def test_a_gap_may_come_from_a_column_or_an_expression() -> None:
    for window in (session("amount"), session(pl.col("amount") * 1), session("pause")):
        h = harness(config(window))
        push(h, (0, "a", 5), (3, "a", 50), (40, "a", 2), (60, "a", 1))
        h.finish()
        assert sent(h) == [(0, "a", 0, 53, 3, 57), (0, "a", 60, 61, 1, 1)]


def test_a_gap_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="at least 1 ms long"):
        session(0)
    with pytest.raises(OptionError, match="not a duration"):
        session("30 mn")
    with pytest.raises(GraphError, match="there is no column 'pauze'"):
        config(session("pauze"))
    with pytest.raises(GraphError, match=r"session.user. is string: give whole ms or a duration"):
        config(session("user"))
    h = harness(config(session("amount")))
    with pytest.raises(UserFunctionError, match=r"gives 0 for a row: a gap is at least 1 ms"):
        push(h, (0, "a", 5), (0, "a", 0))


def test_a_time_whose_session_would_not_fit_is_an_error() -> None:
    h = harness(config(session("1 h")))
    with pytest.raises(Fatal, match="is it in ms since the epoch"):
        push(h, ((1 << 63) - 5, "a", 1))


def test_reduce_merges_sessions() -> None:
    schema = SCHEMA.remove(2)

    def add(one: Any, other: Any) -> Any:
        return other._replace(amount=one.amount + other.amount)

    h = harness(WindowReduce("w", ("user",), session(10), add, schema))
    for time, amount in ((0, 1), (20, 2), (10, 4)):
        h.push(pa.RecordBatch.from_pylist([{"user": "a", "amount": amount}], schema), [time])
    h.finish()
    assert h.rows() == [{"user": "a", "amount": 7}]


def test_a_late_row_updates_a_result_that_was_sent() -> None:
    h = harness(config(tumbling(10), Firings(5)))
    push(h, (0, "a", 1), (0, "b", 1))
    h.advance(9)
    assert len(sent(h)) == 2
    push(h, (3, "a", 2))
    assert sent(h) == [(BEFORE, "a", 0, 10, 1, 1), (AFTER, "a", 0, 10, 2, 3)]
    h.advance(14)
    push(h, (3, "a", 2))
    assert (sent(h), h.late_rows) == ([], 1)


@pytest.mark.parametrize(("results", "total"), [(Results.ACCUMULATING, 3), (Results.DISCARDING, 2)])
def test_a_late_row_sends_the_whole_result_or_its_own(results: Results, total: int) -> None:
    h = harness(config(tumbling(10), Firings(5, results)))
    push(h, (0, "a", 1))
    h.advance(9)
    h = harness(config(tumbling(10), Firings(5, results)), h.snapshot())
    push(h, (3, "a", 2))
    assert sent(h) == [(INSERT, "a", 0, 10, {3: 2, 2: 1}[total], total)]


def test_a_row_late_for_one_of_its_windows_counts_in_the_others() -> None:
    h = harness(config(sliding(10, 5), Firings(2)))
    h.advance(11)
    push(h, (6, "a", 1))
    assert (sent(h), h.late_rows) == ([], 0)
    h.finish()
    assert sent(h) == [(INSERT, "a", 5, 15, 1, 1)]


def test_a_late_row_that_joins_sessions_takes_back_what_they_had_sent() -> None:
    h = harness(config(session(10), Firings(100)))
    push(h, (0, "a", 1), (18, "a", 2))
    h.advance(40)
    assert sent(h) == [(INSERT, "a", 0, 10, 1, 1), (INSERT, "a", 18, 28, 1, 2)]
    push(h, (9, "a", 4))
    assert sent(h) == [
        (DELETE, "a", 0, 10, 1, 1),
        (DELETE, "a", 18, 28, 1, 2),
        (INSERT, "a", 0, 28, 3, 7),
    ]
    push(h, (28, "a", 8), (37, "a", 16))
    assert sent(h) == [(DELETE, "a", 0, 28, 3, 7)], "what goes on has no result yet"
    h.finish()
    assert sent(h) == [(INSERT, "a", 0, 47, 5, 31)]


def test_titles_for_the_plan() -> None:
    assert Session(5).title == "session with a gap of 5 ms"
    assert session("pause").title == "session with a gap by pause"
    assert session(pl.col("pause")).columns_read == {"pause"}
    assert Firings(5).title == ", 5 ms of lateness, retracting"
