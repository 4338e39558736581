"""What every keyed operator must do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.state.operator_state import RestoredState
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import OperatorHarness


@dataclass(frozen=True)
class OperatorUnderTest:
    """A keyed operator, batches for it with their event times, and the watermark after each."""

    create: Callable[[], Operator]
    key_columns: Sequence[str]
    steps: Sequence[tuple[pa.RecordBatch, Sequence[int], int]]
    max_parallelism: int = 8
    state: StateBackend = UNLIMITED


def restored_at_any_parallelism_it_goes_on_as_if_nothing_had_been(case: OperatorUnderTest) -> None:
    """Cut after every step, restored at 1, 2, 3 and all: the output equals that of a run without a cut whose
    state is in memory."""
    expected = run_steps(case, OperatorHarness(case.create, case.key_columns, 1, case.max_parallelism), 0)
    moves = [(1, 2), (3, case.max_parallelism), (2, 1), (2, 3), (1, 1)]
    if case.state is not UNLIMITED:  # opening databases is what takes long
        moves = moves[:2]
    for cut in range(len(case.steps) + 1):
        for before, after in moves:
            first = _harness(case, before)
            rows = run_steps(case, first, 0, cut)
            second = _harness(case, after, first.snapshot())
            first.close()
            rows += run_steps(case, second, cut)
            second.close()
            assert rows == expected, f"cut at {cut}, from {before} to {after}: {rows} not {expected}"


def _harness(
    case: OperatorUnderTest, parallelism: int, states: Sequence[RestoredState] | None = None
) -> OperatorHarness:
    return OperatorHarness(
        case.create, case.key_columns, parallelism, case.max_parallelism, states=states, state=case.state
    )


OPERATOR_CHECKS: Sequence[Callable[[OperatorUnderTest], None]] = (
    restored_at_any_parallelism_it_goes_on_as_if_nothing_had_been,
)


def run_steps(
    case: OperatorUnderTest, harness: OperatorHarness, first: int, end: int | None = None
) -> Counter[str]:
    for batch, event_time, watermark_ms in case.steps[first:end]:
        harness.push(batch, event_time)
        harness.advance(watermark_ms)
    if end is None:
        harness.finish()
    return Counter(repr(row) for row in harness.rows())
