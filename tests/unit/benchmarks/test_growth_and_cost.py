"""What the curves and the cost of exactly-once make of runs: ratios and their spread."""

from __future__ import annotations

from itertools import count

import pytest

from benchmarks.curves import flatness, nanoseconds
from benchmarks.exactly_once_cost import Block, blocks_within, cost_of
from benchmarks.main_job import Measurement, records_written


def measured(records: int, results: int, cpu_s: float) -> Measurement:
    return Measurement(
        records, start_s=1.0, wall_s=1.0, cpu_s=cpu_s, rss_mb=1, slot_rss_mb=1, results=results
    )


# --- As keys grow -------------------------------------------------------------------------------------


def test_a_written_record_counts_as_much_as_one_that_is_read() -> None:
    runs = [measured(1_000_000, 600_000, cpu_s) for cpu_s in (2.0, 1.6, 1.0)]
    assert nanoseconds(runs) == {
        "results_per_record": 0.6,
        "ns_per_read": 1_600.0,
        "ns_per_read_or_written": 1_000.0,
    }


def test_flatness_compares_a_thousand_keys_with_a_million() -> None:
    rows = [
        {"x": 1_000, "ns_per_read": 800.0, "ns_per_read_or_written": 800.0},
        {"x": 100_000, "ns_per_read": 5_000.0, "ns_per_read_or_written": 5_000.0},
        {"x": 1_000_000, "ns_per_read": 2_000.0, "ns_per_read_or_written": 1_200.0},
    ]
    assert flatness(rows) == (
        "1,000 to 1,000,000 keys: 2.50 times the CPU for each record read, "
        "1.50 times for each record read or written"
    )


def test_results_are_those_of_the_jobs_last_progress() -> None:
    events = [
        {"event": "progress", "records_out": 5},
        {"event": "progress", "records_out": 63},
        {"event": "job_finished"},
    ]
    assert records_written(events) == 63


# --- What exactly-once costs --------------------------------------------------------------------------


def test_a_block_is_a_palindrome_so_that_a_steady_drift_cancels() -> None:
    runs, time = count(10), count()

    def drifting() -> float:
        return float(next(runs))

    blocks = list(blocks_within(0, drifting, drifting, lambda: float(next(time))))
    assert [block.ratio for block in blocks] == [1.0, 1.0]
    assert [block.with_it for block in blocks] == [10 + 13, 14 + 17]


def test_as_many_blocks_run_as_fit_and_at_least_two() -> None:
    now_s = 0.0

    def run() -> float:
        nonlocal now_s
        now_s += 25.0
        return 8.0

    assert len(list(blocks_within(9, run, run, lambda: now_s))) == 5, "a sixth would end after ten minutes"
    assert len(list(blocks_within(1, run, run, lambda: now_s))) == 2


def test_the_cost_is_the_mean_of_the_blocks_ratios_with_students_interval() -> None:
    cost = cost_of([Block(1.02, 1.0), Block(1.04, 1.0), Block(2.12, 2.0)])
    assert cost.mean == pytest.approx(0.04, abs=2e-4)
    assert cost.of_sums == pytest.approx(4.18 / 4 - 1)
    # By hand: standard deviation 0.0192 of the logarithms, t = 4.30 for two degrees, three blocks.
    assert cost.low == pytest.approx(-0.0085, abs=5e-4)
    assert cost.high == pytest.approx(0.0908, abs=5e-4)


def test_blocks_that_agree_leave_no_doubt() -> None:
    cost = cost_of([Block(1.03, 1.0)] * 4)
    assert cost.low == cost.mean == cost.high == pytest.approx(0.03)
