"""Windows in processing time, with a clock that is moved by hand."""

from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import OptionError
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.by_clock import ByClock, processing_time
from onceflow.runtime.operators.assigners.counting import count_window
from onceflow.runtime.operators.assigners.cumulative import cumulative
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
START = 1_000_000


def harness(
    window: ByClock, states: Any = None, now_ms: int = START, has_event_time: bool = True
) -> OperatorHarness:
    configured = WindowAggregate(
        "w", ("user",), window, {"n": count(), "total": sum_("amount")}, SCHEMA, has_event_time=has_event_time
    )
    made = OperatorHarness(configured.create, ["user"], 1, states=states, clock=ManualClock())
    made.tick(now_ms - made.clock.now_ms())
    return made


def push(to: OperatorHarness, *rows: tuple[str, int]) -> None:
    to.push(pa.RecordBatch.from_pylist([{"user": u, "amount": n} for u, n in rows], SCHEMA), [7] * len(rows))


def sent(by: OperatorHarness) -> list[tuple[Any, ...]]:
    """What has come out since the last call, in ms after the start: (user, start, end, n, total)."""
    found = [
        (r["user"], r["window_start"] - START, r["window_end"] - START, r["n"], r["total"]) for r in by.rows()
    ]
    by.out.emitted.clear()
    return found


def test_rows_belong_to_the_time_at_which_they_come() -> None:
    h = harness(processing_time(tumbling("1 s")))
    push(h, ("a", 1))
    h.tick(999)
    push(h, ("a", 2))
    assert sent(h) == []
    h.tick(1)
    push(h, ("a", 4))
    assert sent(h) == [("a", 0, 1_000, 2, 3)]
    h.tick(1_000)
    assert sent(h) == [("a", 1_000, 2_000, 1, 4)]
    assert h.late_rows == 0


def test_a_watermark_fires_nothing_and_the_end_of_the_input_all() -> None:
    h = harness(processing_time(tumbling("1 s")))
    push(h, ("a", 1))
    h.advance(START + 5_000)
    assert sent(h) == []
    h.finish()
    assert sent(h) == [("a", 0, 1_000, 1, 1)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (
            sliding("2 s", "1 s"),
            [("a", -1_000, 1_000, 1, 1), ("a", 0, 2_000, 2, 3), ("a", 1_000, 3_000, 1, 2)],
        ),
        (session("600 ms"), [("a", 0, 600, 1, 1), ("a", 1_500, 2_100, 1, 2)]),
        (
            cumulative("2 s", "1 s"),
            [("a", 0, 1_000, 1, 1), ("a", 0, 2_000, 2, 3)],
        ),
    ],
)
def test_all_windows_of_time(window: Any, expected: list[tuple[Any, ...]]) -> None:
    h = harness(processing_time(window))
    push(h, ("a", 1))
    for step in range(40):
        if step == 15:
            push(h, ("a", 2))
        h.tick(100)
    assert sent(h) == expected


def test_a_restored_window_fires_by_the_clock_of_the_new_machine() -> None:
    h = harness(processing_time(tumbling("1 s")))
    push(h, ("a", 1))
    h.tick(5_000)
    h.out.emitted.clear()
    push(h, ("a", 2))
    behind = harness(processing_time(tumbling("1 s")), h.snapshot(), START + 1_000)
    push(behind, ("a", 4))
    behind.tick(1_000)
    assert sent(behind) == [("a", 1_000, 2_000, 1, 4)], "nothing is late where the clock is behind"
    behind.tick(10_000)
    assert sent(behind) == [("a", 5_000, 6_000, 1, 2)]


def test_results_have_the_first_event_time_that_is_not_late_or_none() -> None:
    def times(h: OperatorHarness) -> list[Any]:
        found: list[Records] = [records for _, records in h.out.emitted]
        return [None if records.event_time is None else records.event_time.tolist() for records in found]

    h = harness(processing_time(tumbling("1 s")))
    h.advance(70)
    push(h, ("a", 1))
    h.tick(1_000)
    assert times(h) == [[71]]
    h = harness(processing_time(tumbling("1 s")), has_event_time=False)
    push(h, ("a", 1))
    h.tick(1_000)
    assert times(h) == [None]


def test_windows_that_know_no_time_are_refused() -> None:
    with pytest.raises(OptionError, match=r"use tumbling\(...\)"):
        processing_time(count_window(3))  # type: ignore[arg-type]
