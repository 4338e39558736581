"""A job in a test: what comes out, when, what is kept, and that a crash changes nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.runtime.errors import OnceflowError, UsageError
from onceflow.runtime.records import RowKind
from onceflow.testing import At, run
from tests.unit.testing.jobs import Purchase, failing, of_order, timestamped, totals

ROWS = [Purchase("ann", "buy", 5, 0), Purchase("ann", "refund", 1, 1), Purchase("bob", "buy", 7, 9_999)]
ANN = {"user": "ann", "window_start": 0, "window_end": 10_000, "count": 1, "total": 5}
BOB = {"user": "bob", "window_start": 0, "window_end": 10_000, "count": 1, "total": 7}


def by_user(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (str(row["user"]), str(row.get("window_start"))))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_fire_when_event_time_comes_to_their_end(parallelism: int) -> None:
    with run(totals(), parallelism=parallelism, purchases=ROWS) as job:
        assert job.advance_to("9998 ms").user_totals == [], "a row at 9,999 may still come"
        assert by_user(job.advance_to("10 s").user_totals) == [ANN, BOB]
        job.push(purchases=[{"user": "ann", "type": "buy", "amount": 9, "ts": 5}])
        assert (job.late_records, job.late) == (1, [{"user": "ann", "type": "buy", "amount": 9, "ts": 5}])


def test_rows_are_committed_by_checkpoints_and_a_crash_undoes_the_others() -> None:
    with run(totals(), purchases=ROWS) as job:
        job.checkpoint().advance_to("10 s")
        assert by_user(job.user_totals) == [ANN, BOB]
        assert job.committed("user-totals") == []
        job.crash(parallelism=2)
        assert by_user(job.user_totals) == [ANN, BOB], "they came again, from what was read again"
        job.checkpoint()
        assert by_user(job.committed("user-totals")) == [ANN, BOB]
        job.crash()
        assert by_user(job.user_totals) == [ANN, BOB], "and not a second time"


def test_state_goes_through_a_restart_at_another_parallelism() -> None:
    with run(totals(), purchases=ROWS) as job:
        kept = by_user([{**row["key"], **row["value"]} for row in job.state("per-user")])
        assert kept == [{"user": "ann", "count": 1, "total": 5}, {"user": "bob", "count": 1, "total": 7}]
        assert by_user(job.restart(parallelism=3).advance_to("10 s").user_totals) == [ANN, BOB]


def test_the_end_of_the_input_fires_everything_and_ends_the_job() -> None:
    with run(totals(), purchases=ROWS) as job:
        assert by_user(job.finish().committed("user-totals")) == [ANN, BOB]
        with pytest.raises(UsageError, match="source 'purchases' has ended"):
            job.push(purchases=ROWS)


def test_splits_hold_the_watermark_back_as_partitions_do() -> None:
    with run(totals(slack="0 s"), purchases={"events-0": ROWS, "events-1": []}) as job:
        job.push(purchases={"events-0": [Purchase("ann", "buy", 1, 10_001)]})
        assert job.user_totals == [], "the other partition may still have rows of that window"
        job.push(purchases={"events-1": [Purchase("bob", "buy", 1, 10_001)]})
        assert by_user(job.user_totals) == [ANN, BOB]
        with pytest.raises(UsageError, match="has no split \\['events-2'\\]"):
            job.push(purchases={"events-2": []})


def test_rows_may_be_an_arrow_table() -> None:
    table = pa.table({"user": ["ann"], "type": ["buy"], "amount": [5], "ts": [0]})
    with run(totals(), purchases=table) as job:
        assert job.advance_to("10 s").user_totals == [ANN]


def test_changes_say_what_rows_do() -> None:
    with run(of_order(), purchases=ROWS[:1]) as job:
        assert job.changes("differences") == [
            (RowKind.INSERT, {"user": "ann", "type": "buy", "amount": 5, "ts": 0})
        ]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([{"user": "ann"}], "source 'purchases', row 0: .* does not have its fields"),
        ([Purchase("ann", "buy", "5", 0)], "source 'purchases', row 0: field 'amount' is declared int"),
        ([ROWS[0], 7], "source 'purchases', row 1: a int was returned"),
    ],
)
def test_a_row_that_is_none_is_named(rows: list[object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        run(totals(), purchases=rows)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="no source 'purchase' \\(did you mean 'purchases'\\?\\)"):
        run(totals(), purchase=ROWS)
    with run(totals()) as job, pytest.raises(UsageError, match="no sink 'user_total' \\(did you mean"):
        _ = job.user_total


def test_what_a_function_raises_comes_to_the_test() -> None:
    with pytest.raises(OnceflowError, match="ZeroDivisionError"):
        run(failing(), purchases=ROWS)


def test_a_source_whose_event_time_is_the_records_own_gets_it_from_at() -> None:
    with run(timestamped(), purchases=[At(ROWS[0], "3 s"), At(ROWS[2], "12 s")]) as job:
        assert job.advance_to("10 s").out == [
            {"user": "ann", "window_start": 0, "window_end": 10_000, "n": 1}
        ]


def test_plain_values_come_as_from_elements_takes_them() -> None:
    job = Job("names")
    job.from_elements("ann").collect(uid="out")
    with run(job, from_elements=["bob", "eve"]) as names:
        assert names.rows("out") == [{"value": "bob"}, {"value": "eve"}], "without its own elements"
