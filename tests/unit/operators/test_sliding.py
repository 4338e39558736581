"""Sliding windows: what counts in which window, user aggregates, reduce, restores, mistakes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from onceflow.runtime.errors import Fatal, GraphError, OptionError, UserFunctionError
from onceflow.runtime.kernels.ops import ops_here, using
from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction, count, first, last, sum_
from onceflow.runtime.operators.assigners.sliding import Sliding, sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])


def harness(window: Sliding, states=None, parallelism: int = 1, late: bool = False, **aggregates):
    configured = WindowAggregate("totals", ("user",), window, aggregates or {"n": count()}, SCHEMA, late=late)
    return OperatorHarness(configured.create, ["user"], parallelism, states=states)


def push(to: OperatorHarness, *rows: tuple[int, str, int | None]) -> None:
    """Rows of (event time, user, amount)."""
    batch = pa.RecordBatch.from_pylist([{"user": user, "amount": n} for _, user, n in rows], SCHEMA)
    to.push(batch, [time for time, _, _ in rows])


def found(h: OperatorHarness, name: str = "n") -> list[tuple[str, int, int, object]]:
    return sorted((row["user"], row["window_start"], row["window_end"], row[name]) for row in h.rows())


def test_a_row_counts_in_every_window_that_contains_it():
    h = harness(sliding(3, 1), total=sum_("amount"))
    push(h, (10, "a", 1), (12, "a", 10))
    h.finish()
    assert found(h, "total") == [
        ("a", 8, 11, 1),
        ("a", 9, 12, 1),
        ("a", 10, 13, 11),
        ("a", 11, 14, 10),
        ("a", 12, 15, 10),
    ]


def test_a_size_that_is_no_multiple_of_the_slide_has_windows_of_that_size():
    """Goal: panes of two lengths. With 5 and 3 a window is 3 + 2."""
    h = harness(sliding(5, 3, offset=1))
    push(h, *((time, "a", 1) for time in range(1, 11)))
    h.finish()
    assert found(h) == [
        ("a", -2, 3, 2),
        ("a", 1, 6, 5),
        ("a", 4, 9, 5),
        ("a", 7, 12, 4),
        ("a", 10, 15, 1),
    ]


def test_a_row_that_comes_between_two_firings_counts_in_the_windows_that_are_left():
    h = harness(sliding(10, 5), late=True)
    push(h, (7, "a", 1))
    h.advance(9)
    push(h, (7, "a", 1), (4, "a", 1))
    h.finish()
    assert found(h) == [("a", 0, 10, 1), ("a", 5, 15, 2)]
    assert h.late_rows == 1
    assert h.rows("late") == [{"user": "a", "amount": 1}]


def test_windows_far_apart_are_not_walked_through_one_by_one():
    h = harness(sliding(10, 1))
    push(h, (0, "a", 1), (1 << 50, "a", 1))
    h.finish()
    assert len(found(h)) == 20


def test_results_are_by_window_and_carry_its_last_millisecond():
    h = harness(sliding(10, 5))
    push(h, *((time, f"u{time % 3}", 1) for time in range(20)))
    h.finish()
    times = [time for _, records in h.out.emitted for time in records.event_time.tolist()]
    assert times == sorted(times)
    assert [row["window_end"] - 1 for row in h.rows()] == times


def test_first_and_last_go_by_event_time_over_all_panes():
    h = harness(sliding(4, 2), first=first("amount"), last=last("amount"))
    push(h, (3, "a", 3), (0, "a", 0), (2, "a", 2), (1, "a", None), (3, "a", 33), (0, "a", 100))
    h.advance(3)
    [row] = [row for row in h.rows() if row["window_start"] == 0]
    assert (row["first"], row["last"]) == (0, 33)


def test_a_sum_that_fits_in_each_pane_but_not_in_the_window_fails_and_names_both():
    h = harness(sliding(10, 5), total=sum_("amount"))
    push(h, (1, "rich", (1 << 63) - 1), (6, "rich", 5), (6, "fine", 5))
    with pytest.raises(Fatal, match=r"'total': .* 9223372036854775812 .*user='rich' in the window \[0, 10\)"):
        h.finish()


def test_keys_that_are_gone_leave_no_memory():
    h = harness(sliding(10, 5))
    for step in range(50):
        push(h, *((step * 100 + i % 10, f"u{step}-{i}", 1) for i in range(500)))
        h.advance(step * 100 + 50)
    [sliding_operator] = h.subtasks
    operator = sliding_operator._of
    assert operator._table.size <= 1_000
    assert operator._table.key_count <= 1_000
    assert len(h.rows()) > 0


# --- The user's own functions -----------------------------------------------------------------------


@dataclass
class Seen:
    """An accumulator that is changed in place."""

    amounts: list[int]


class Listed(AggregateFunction[object, Seen, str]):
    def create_accumulator(self) -> Seen:
        return Seen([])

    def add(self, value: object, accumulator: Seen) -> Seen:
        accumulator.amounts.append(value.amount)  # type: ignore[attr-defined]
        return accumulator

    def merge(self, accumulator_a: Seen, accumulator_b: Seen) -> Seen:
        if 666 in accumulator_b.amounts:
            raise ValueError("no")
        accumulator_a.amounts += accumulator_b.amounts
        return accumulator_a

    def get_result(self, accumulator: Seen) -> str:
        return " ".join(map(str, accumulator.amounts))


def test_accumulators_of_the_users_are_merged_and_stay_as_they_are_for_the_next_window():
    h = harness(sliding(3, 1), listed=Listed())
    push(h, (2, "a", 2), (0, "a", 0), (1, "a", 1), (4, "a", 4))
    h = harness(sliding(3, 1), h.snapshot(), listed=Listed())
    h.finish()
    assert found(h, "listed") == [
        ("a", -2, 1, "0"),
        ("a", -1, 2, "0 1"),
        ("a", 0, 3, "0 1 2"),
        ("a", 1, 4, "1 2"),
        ("a", 2, 5, "2 4"),
        ("a", 3, 6, "4"),
        ("a", 4, 7, "4"),
    ]


def test_an_error_in_the_users_merge_names_it():
    h = harness(sliding(3, 1), listed=Listed())
    push(h, (0, "a", 0), (1, "a", 666))
    with pytest.raises(UserFunctionError, match=r"merge.*ValueError"):
        h.finish()


@dataclass(frozen=True)
class Row:
    user: str
    amount: int


def halved(so_far: Row, row: Row) -> Row:
    return Row(so_far.user, so_far.amount // 2 + row.amount)


@pytest.mark.parametrize("restores", [False, True])
def test_reduce_takes_the_rows_of_each_window_in_the_order_in_which_they_came(restores):
    """Goal: halved() is not associative, so a result made of parts would be another."""
    reduced = WindowReduce("r", ("user",), sliding(4, 2), halved, SCHEMA, late=True, record_type=Row)
    h = OperatorHarness(reduced.create, ["user"])
    push(h, (1, "a", 8), (3, "a", 100), (2, "a", 6))
    h.advance(1)
    if restores:
        states, emitted, late = h.snapshot(), h.out.emitted, h.late_rows
        h = OperatorHarness(reduced.create, ["user"], 3, states=states)
        h.out.emitted += emitted
        h.late_rows = late
    push(h, (1, "a", 1000), (-1, "a", 1))
    h.finish()
    by_end = [
        (records.event_time.tolist(), records.batch.column("amount").to_pylist())
        for tag, records in h.out.emitted
        if not tag
    ]
    windows = sorted(
        (time + 1, amount) for times, amounts in by_end for time, amount in zip(times, amounts, strict=True)
    )
    # [-2, 2) fired with 8 alone; [0, 4): ((8/2 + 100)/2 + 6)/2 + 1000; [2, 6): 100/2 + 6
    assert windows == [(2, 8), (4, 1029), (6, 56)]
    assert h.late_rows == 1


# --- Restore and mistakes -----------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_what_has_fired_before_the_snapshot_does_not_fire_again(parallelism):
    """Goal: a pane outlives some of its windows; which of them fired is by key group."""
    users = [f"u{i}" for i in range(40)]
    h = harness(sliding(10, 5), None, 2)
    push(h, *((7, user, 1) for user in users))
    h.advance(9, subtask=0)
    fired = {row["user"] for row in h.rows()}
    assert 0 < len(fired) < 40
    before = found(h)
    h = harness(sliding(10, 5), h.snapshot(), parallelism)
    h.advance(9)
    h.finish()
    assert sorted(before + found(h)) == sorted(
        (user, start, start + 10, 1) for user in users for start in (0, 5)
    )


def test_state_of_other_windows_is_refused():
    h = harness(sliding(10, 5))
    push(h, (7, "a", 1))
    states = h.snapshot()
    for other in (sliding(10, 2), sliding(15, 5), sliding(10, 5, offset=1), tumbling(10)):
        with pytest.raises(Fatal, match=r"\[10, 5, 0\] ms.*new uid"):
            harness(other, states)


def test_wrong_sizes_are_refused_by_name():
    assert sliding("10 s", "1 s", offset=-500) == Sliding(10_000, 1_000, 500)
    with pytest.raises(OptionError, match="slide='11 s' is longer than size='10 s'"):
        sliding("10 s", "11 s")
    with pytest.raises(OptionError, match="slide=0"):
        sliding("10 s", 0)
    with pytest.raises(OptionError, match="size"):
        sliding("x", "1 s")


def test_a_time_whose_windows_would_not_fit_is_an_error():
    for time in ((1 << 63) - 1, -(1 << 63)):
        with pytest.raises(Fatal, match="ms since the epoch"):
            push(harness(sliding(10, 5)), (time, "a", 1))


def test_kernels_and_arrays_emit_the_same_rows_in_the_same_order():
    aggregate = WindowAggregate("w", ("user",), sliding(100, 10), {"n": count(), "t": sum_("amount")}, SCHEMA)
    rows = []
    for chosen in ops_here():
        with using(chosen):
            h = OperatorHarness(aggregate.create, ["user"])
            for first_time in range(0, 3_000, 300):
                push(h, *((first_time + i * 7 % 450, f"u{i * 31 % 700}", i) for i in range(2_000)))
                h.advance(first_time)
            h.finish()
        rows.append(h.rows())
    assert rows[0] == rows[-1]
    assert len(rows[0]) > 10_000


def test_the_window_of_a_key_by_must_be_one_of_ours():
    with pytest.raises(GraphError, match="at least one aggregate"):
        WindowAggregate("totals", ("user",), sliding(10, 5), {}, SCHEMA)
