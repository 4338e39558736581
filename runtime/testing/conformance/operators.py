"""What every keyed operator must do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.testing.harness import OperatorHarness


@dataclass(frozen=True)
class OperatorUnderTest:
    """A keyed operator, batches for it with their event times, and the watermark after each."""

    create: Callable[[], Operator]
    key_columns: Sequence[str]
    steps: Sequence[tuple[pa.RecordBatch, Sequence[int], int]]
    max_parallelism: int = 8


def restored_at_any_parallelism_it_goes_on_as_if_nothing_had_been(case: OperatorUnderTest) -> None:
    """Cut after every step, restored at 1, 2, 3 and all: the output equals that of a run without a cut."""
    expected = run_steps(case, OperatorHarness(case.create, case.key_columns, 1, case.max_parallelism), 0)
    for cut in range(len(case.steps) + 1):
        for before, after in ((1, 2), (2, 1), (2, 3), (3, case.max_parallelism), (1, 1)):
            first = OperatorHarness(case.create, case.key_columns, before, case.max_parallelism)
            rows = run_steps(case, first, 0, cut)
            second = OperatorHarness(
                case.create, case.key_columns, after, case.max_parallelism, states=first.snapshot()
            )
            rows += run_steps(case, second, cut)
            assert rows == expected, f"cut at {cut}, from {before} to {after}: {rows} not {expected}"


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
