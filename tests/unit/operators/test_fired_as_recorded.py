"""Firing in pieces: what comes between two of them, records, a snapshot, a restore, changes nothing.

Method: the same rows and watermarks go through an operator that fires at once and through one that fires in
pieces, with a cut after each number of pieces. Output, and what is counted as late, are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.operators.aggregation.aggregates import count
from onceflow.runtime.operators.assigners.sliding import Sliding, sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling, tumbling
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.operators.windows.pane_operator import PaneOperator
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.operators.windows.window_operator import EMIT_ROWS_MAX, WindowOperator
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated

SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False)])
Batch = Sequence[tuple[int, int]]
"""(key, event time) of each row."""


@dataclass(frozen=True)
class Case:
    """Rows, a watermark that makes much due, rows that come behind it, and rows that come later still."""

    window: Tumbling | Sliding
    before: Batch
    watermark_ms: int
    behind: Batch
    later: Batch
    last_ms: int = 1_000_000


def windows(window: Tumbling | Sliding) -> Callable[[], WindowOperator | PaneOperator]:
    return WindowAggregate("w", ("key",), window, {"n": count()}, SCHEMA).create


def push(harness: OperatorHarness, batch: Batch) -> None:
    keys = pa.array([key for key, _ in batch], pa.int64())
    harness.push(pa.RecordBatch.from_arrays([keys], schema=SCHEMA), [time for _, time in batch])


def results(emitted: Iterable[tuple[str, Records]]) -> Counter[tuple[int, int, int]]:
    """(key, start of the window, count)."""
    columns = ("key", "window_start", "n")
    return Counter(
        row
        for _, records in emitted
        for row in zip(*(records.batch.column(name).to_pylist() for name in columns), strict=True)
    )


def at_once(case: Case) -> tuple[Counter[tuple[int, int, int]], int]:
    """What comes out, and how much is late, if a watermark fires as a whole."""
    harness = OperatorHarness(windows(case.window), ["key"])
    push(harness, case.before)
    harness.advance(case.watermark_ms)
    push(harness, case.behind)
    push(harness, case.later)
    harness.advance(case.last_ms)
    return results(harness.out.emitted), harness.late_rows


def check_cut(case: Case, pieces: int, rows_max: int, restored_at: int) -> bool:
    """Take a snapshot and restore it after so many pieces. False: there are not so many."""
    first = OperatorHarness(windows(case.window), ["key"])
    push(first, case.before)
    first.begin(case.watermark_ms)
    for _ in range(pieces):
        if not first.fire(rows_max):
            return False
    half = len(case.behind) // 2
    push(first, case.behind[:half])
    second = OperatorHarness(windows(case.window), ["key"], restored_at, states=first.snapshot())
    push(second, case.behind[half:])
    second.begin(case.watermark_ms // 2)  # a restored source begins again further back
    second.fire(rows_max)
    second.begin(case.watermark_ms)
    second.fire(rows_max)
    push(second, case.later)
    second.advance(case.last_ms)
    out, late_rows = at_once(case)
    assert results(first.out.emitted) + results(second.out.emitted) == out, f"cut after {pieces} pieces"
    assert first.late_rows + second.late_rows == late_rows
    return True


def check_every_cut(case: Case, rows_max: int = 2, restored_at: int = 1) -> None:
    pieces = 0
    while check_cut(case, pieces, rows_max, restored_at):
        pieces += 1
    assert pieces > 2, "there is something between two pieces"


def all_keys(*times: int) -> Batch:
    return [(key, time) for time in times for key in range(5)]


ONE_WINDOW = Case(tumbling("10 s"), all_keys(0), 9_999, all_keys(5, 10_000, 6, 10_001), all_keys(20_000))
CATCHING_UP = Case(
    tumbling("10 s"),
    all_keys(20_000, 0, 10_000),
    40_000,
    all_keys(15_000, 41_000, 16_000, 42_000),
    all_keys(50_000),
)
SLIDING = Case(
    sliding("10 s", "5 s"),
    [*all_keys(0), (7, 3), (8, 6_000)],
    14_999,
    [*all_keys(4, 15_000), (9, 15_001), *all_keys(5, 15_002)],
    [*all_keys(16_000), (10, 20_000)],
)
CASES = pytest.mark.parametrize(
    "case", [ONE_WINDOW, CATCHING_UP, SLIDING], ids=["one window", "several", "sliding"]
)


@CASES
@pytest.mark.parametrize("restored_at", [1, 2])
def test_a_cut_between_two_pieces_of_firing_changes_nothing(case: Case, restored_at: int) -> None:
    check_every_cut(case, 2, restored_at)
    check_every_cut(case, 1, restored_at)


@CASES
def test_results_come_in_the_same_order_in_pieces(case: Case) -> None:
    whole, pieces = (OperatorHarness(windows(case.window), ["key"]) for _ in range(2))
    for harness in (whole, pieces):
        push(harness, case.before)
    whole.advance(case.watermark_ms)
    pieces.begin(case.watermark_ms)
    while pieces.fire(2):
        assert len(pieces.out.emitted[-1][1]) <= 2
    assert pieces.rows() == whole.rows()


def test_a_piece_has_as_many_rows_as_were_asked_for_however_many_are_due() -> None:
    for window in (tumbling("10 s"), sliding("10 s", "5 s")):
        harness = OperatorHarness(windows(window), ["key"])
        keys = np.arange(3 * EMIT_ROWS_MAX)
        harness.push(pa.RecordBatch.from_arrays([pa.array(keys)], schema=SCHEMA), np.zeros(len(keys), int))
        harness.begin(4_999 if isinstance(window, Sliding) else 9_999)
        assert harness.fire(1_000) == 1_000
        assert harness.fire(10 * EMIT_ROWS_MAX) == EMIT_ROWS_MAX
        assert [len(records) for _, records in harness.out.emitted] == [1_000, EMIT_ROWS_MAX]


def test_pieces_of_few_keys_among_many_are_not_smaller_than_asked_for() -> None:
    """Keys are numbered once for all panes, so those of one window may be far apart."""
    harness = OperatorHarness(windows(sliding("10 s", "5 s")), ["key"])
    keys = np.arange(50_000)
    harness.push(pa.RecordBatch.from_arrays([pa.array(keys)], schema=SCHEMA), np.full(len(keys), 20_000))
    push(harness, [(key, 1) for key in range(0, 50_000, 1_000)])
    harness.begin(9_999)
    assert [harness.fire(30) for _ in range(5)] == [30, 20, 30, 20, 0]


def test_a_row_behind_the_watermark_counts_in_the_sliding_windows_that_have_not_fired_for_its_key() -> None:
    harness = OperatorHarness(windows(sliding("10 s", "5 s")), ["key"])
    push(harness, all_keys(3_000))
    harness.begin(4_999)
    harness.fire(2)
    push(harness, [(1, 4_000), (4, 4_000), (6, 4_000)])
    while harness.fire(2):
        pass
    assert harness.late_rows == 0
    first = {key: n for key, start, n in results(harness.out.emitted) if start == -5_000}
    assert first == {0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 6: 1}
    harness.finish()
    second = {key: n for key, start, n in results(harness.out.emitted) if start == 0}
    assert second == {0: 1, 1: 2, 2: 1, 3: 1, 4: 2, 6: 1}


# --- Mutants


def _all_said_to_have_fired(self: Lateness):
    fired_ms, self.fired_ms = self.fired_ms, self.reached_ms
    meta = _as_meta(self)
    self.fired_ms = fired_ms
    return meta


def _only_what_fired(self: Lateness):
    return {name: runs for name, runs in _as_meta(self).items() if name != "reached"}


def _keys_not_told(self: PaneOperator) -> None:
    return None


_as_meta = Lateness.as_meta

MUTANTS = [
    (SLIDING, Mutant("what is due is recorded as fired", [(Lateness, "as_meta", _all_said_to_have_fired)])),
    (
        ONE_WINDOW,
        Mutant("the watermark on its way is not recorded", [(Lateness, "as_meta", _only_what_fired)]),
    ),
    (SLIDING, Mutant("fired keys are not recorded", [(PaneOperator, "_fired_by_row", _keys_not_told)])),
]


@pytest.mark.parametrize(("case", "mutant"), MUTANTS, ids=lambda given: getattr(given, "title", ""))
def test_mutants_of_the_snapshot_between_two_pieces_are_killed(case: Case, mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_every_cut(case)
