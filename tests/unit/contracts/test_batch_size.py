"""How large a batch becomes, by what it costs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.runtime.contracts.batch_size import GOAL_MS, RECORDS_MAX, BatchSize

Cost = Callable[[int], float]


class Pipeline:
    """What a batch costs in it is known; its source always has `there` records."""

    def __init__(self) -> None:
        self.size = BatchSize()
        self.now_ms = 0.0

    def batch(self, cost: Cost, there: int = 1 << 60) -> tuple[int, float]:
        """Records and milliseconds."""
        records = min(self.size.ask(self.now_ms), there)
        self.size.took(records)
        self.now_ms += cost(records)
        return records, cost(records)

    def batches(self, count: int, cost: Cost) -> list[int]:
        return [self.batch(cost)[0] for _ in range(count)]


def settled(cost: Cost) -> tuple[int, float]:
    pipeline = Pipeline()
    pipeline.batches(20, cost)
    return pipeline.batch(cost)


def test_a_quick_pipeline_gets_all_that_it_may() -> None:
    assert settled(lambda n: 0.5 + 0.00025 * n)[0] == RECORDS_MAX


def test_a_slow_function_gets_few_so_that_a_barrier_does_not_wait() -> None:
    records, took_ms = settled(lambda n: 1.0 + 1.0 * n)
    assert records >= 10
    assert took_ms <= 2 * GOAL_MS


def test_a_record_that_takes_longer_than_a_batch_should_is_alone() -> None:
    assert settled(lambda n: 60.0 * n)[0] == 1


def test_what_is_called_once_a_batch_gets_many_records_however_long_it_takes() -> None:
    assert settled(lambda n: 50.0 + 0.0001 * n)[0] == RECORDS_MAX
    assert settled(lambda n: 30.0)[0] == RECORDS_MAX


@given(st.floats(0, 500), st.floats(1e-5, 100))
@example(41.0, 87.0)  # one record, which no other size is below, though the batch's own cost is high
def test_a_batch_is_through_soon_or_its_own_cost_is_as_large_as_its_records(
    fixed: float, each: float
) -> None:
    records, took_ms = settled(lambda n: fixed + each * n)
    if records == 1:  # there is no smaller batch: right where two take too long, or gain too little
        assert fixed + 2 * each > GOAL_MS
        assert fixed <= GOAL_MS / 2 or each >= fixed / 3
        return
    assert took_ms <= 2 * GOAL_MS + each or each * records <= 2.1 * fixed
    if fixed <= GOAL_MS / 2:
        assert records == RECORDS_MAX or took_ms >= GOAL_MS / 4
    else:
        assert records == RECORDS_MAX or each * records >= fixed / 3


def test_one_long_batch_does_not_matter_for_long() -> None:
    pipeline = Pipeline()
    pipeline.batches(20, lambda n: 0.00025 * n)
    pipeline.batch(lambda n: 30_000.0)
    assert pipeline.batches(3, lambda n: 0.00025 * n) == [RECORDS_MAX // 4, RECORDS_MAX // 2, RECORDS_MAX]


def test_an_idle_source_keeps_its_size() -> None:
    pipeline = Pipeline()
    before = pipeline.size.ask(0.0)
    for _ in range(9):
        assert pipeline.batch(lambda n: 1.0, there=10) == (10, 1.0)
        assert [pipeline.size.ask(pipeline.now_ms + later) for later in (0, 1_000, 90_000)] == [before] * 3


def test_some_records_that_do_not_come_on_are_no_sign_of_an_idle_source() -> None:
    pipeline = Pipeline()
    for _ in range(9):
        asked = pipeline.size.ask(pipeline.now_ms)
        pipeline.size.took(asked * 2 // 3)
        pipeline.now_ms += 1
    assert asked == RECORDS_MAX


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_machine_does_not_make_batches_small(seed: int) -> None:
    chosen = random.Random(seed)
    sizes = Pipeline().batches(300, lambda n: (1 + 0.0003 * n) * chosen.uniform(0.7, 2.0))[20:]
    assert sum(sizes) / len(sizes) > RECORDS_MAX / 2
