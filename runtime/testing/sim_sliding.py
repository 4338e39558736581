"""The simulated job with windows that slide, over time and over rows, and what they have to send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.operators.aggregation.aggregates import count, max_, min_, sum_
from onceflow.runtime.operators.assigners.counting import count_window
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.testing.choices import Choices
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import SimInput, SimRecord, SimSource, Splits, sim_graph
from onceflow.runtime.testing.sim_rows import REAL_WINDOW, WINDOW_MS, Row
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.world import WorldOptions

SLIDE_MS = WINDOW_MS // 2
ROWS, ROWS_SLIDE = 3, 2
"""How long windows by count are, and how far apart."""


def world_of_time(choices: Choices, options: WorldOptions) -> SimWorld:
    """Windows of WINDOW_MS every SLIDE_MS."""
    return SimWorld(choices, options, _graph_of_time, input_of=_with_windows_of_time)


def world_of_rows(choices: Choices, options: WorldOptions) -> SimWorld:
    """Windows of the last ROWS rows of a key every ROWS_SLIDE."""
    return SimWorld(choices, options, _graph_of_rows, input_of=_with_windows_of_rows)


def _graph_of_time(
    source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool
) -> JobGraph:
    return sim_graph(source, sink, max_parallelism, has_real_windows, window=sliding(WINDOW_MS, SLIDE_MS))


def _graph_of_rows(
    source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool
) -> JobGraph:
    """`first` and `last` stand where other windows have their bounds."""
    aggregates = {"first": min_("id"), "last": max_("id"), "count": count(), "total": sum_("value")}
    window = count_window(ROWS, slide=ROWS_SLIDE)
    return sim_graph(source, sink, max_parallelism, has_real_windows, window=window, aggregates=aggregates)


def _with_windows_of_time(drawn: SimInput) -> SimInput:
    return replace(drawn, real_windows=_rows_of_time)


def _rows_of_time(splits: Splits) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for key, records in _by_key(splits).items():
        ends = {
            (r.ts // SLIDE_MS + n) * SLIDE_MS for r in records for n in range(1, 1 + WINDOW_MS // SLIDE_MS)
        }
        for end in ends:
            found[_row(key, end, [r for r in records if end - WINDOW_MS <= r.ts < end])] += 1
    return found


def _with_windows_of_rows(drawn: SimInput) -> SimInput:
    """The records of a split are those of one key, and of no other split: these windows go by the order of a
    key's rows, and between splits there is none."""
    own = {
        name: [replace(record, key=number) for record in records]
        for number, (name, records) in enumerate(drawn.splits.items())
    }
    return replace(drawn, splits=own, real_windows=_rows_of_rows)


def _rows_of_rows(splits: Splits) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for key, records in _by_key(splits).items():
        for end in range(ROWS_SLIDE, len(records) + 1, ROWS_SLIDE):
            inside = records[max(0, end - ROWS) : end]
            found[_row(key, inside[-1].id, inside)] += 1
    return found


def _row(key: int, at: int, records: Iterable[SimRecord]) -> Row:
    values = [r.value for r in records]
    return (REAL_WINDOW, key, at, len(values), sum(values))


def _by_key(splits: Splits) -> dict[int, list[SimRecord]]:
    found: dict[int, list[SimRecord]] = {}
    for records in splits.values():
        for record in records:
            found.setdefault(record.key, []).append(record)
    return found
