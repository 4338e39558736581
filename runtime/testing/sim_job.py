"""The simulated job: splits of keyed records, a keyed operator with state and timers, two sinks.

    source "src" --> sink "raw"            every record as it is: nothing lost, nothing doubled
               \\--> by key --> "tally" --> sink "out"
                                           a running count per key, and a count per key and window

The running counts of a key are 1, 2, 3, ... exactly once each if and only if every record counted once;
a window's row is right and comes once if and only if state, timers and watermarks are exact. On request
a third path goes through the product's own window operator, which is slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    Fetch,
    ReaderContext,
    Sink,
    SourceReader,
    SplitEnumerator,
    SplitState,
    WatermarkStrategy,
)
from onceflow.runtime.graph.job_graph import (
    ByKey,
    Chain,
    Edge,
    InChain,
    JobGraph,
    OperatorNode,
    SinkNode,
    SourceNode,
    Target,
    ToEdge,
)
from onceflow.runtime.operators.aggregation.aggregates import Aggregate, count, sum_
from onceflow.runtime.operators.assigners.firings import ONCE, Firings
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.description import KeyColumn, StateDescription
from onceflow.runtime.testing.choices import Choices
from onceflow.runtime.testing.sim_rows import (
    RAW,
    REAL_WINDOW,
    RESULT_SCHEMA,
    RUNNING,
    WINDOW,
    WINDOW_MS,
    Row,
    window_end,
)
from onceflow.runtime.testing.sim_tally import Tally

OUT_OF_ORDERNESS_MS = 5
TIMES = WatermarkStrategy("ts", OUT_OF_ORDERNESS_MS)
TUMBLING = tumbling(WINDOW_MS)
AGGREGATES: Mapping[str, Aggregate] = {"count": count(), "total": sum_("value")}

RECORD_SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "key", "ts", "value")])


@dataclass(frozen=True, slots=True)
class SimRecord:
    id: int
    key: int
    ts: int
    value: int


Splits = Mapping[str, Sequence["SimRecord"]]


def tumbling_rows(splits: Splits) -> Counter[Row]:
    """What the real windows send of these records if they are tumbling ones."""
    return expected_windows([r for part in splits.values() for r in part], REAL_WINDOW)


@dataclass(frozen=True)
class SimInput:
    """All records, by split, in order; and what the real windows make of them."""

    splits: Splits
    real_windows: Callable[[Splits], Counter[Row]] = tumbling_rows

    @staticmethod
    def draw(choices: Choices, splits: int, records_max: int, keys: int) -> SimInput:
        """Splits of unequal length; event time goes forward, out of order within the bound, and at a
        different pace in each split."""
        drawn: dict[str, list[SimRecord]] = {}
        next_id = 0
        for number in range(splits):
            records = drawn.setdefault(f"split-{number}", [])
            highest = 0
            pace = (1, 4, 15)[choices.choose(3, "pace")]
            for _ in range(1 + choices.choose(records_max, "records of the split")):
                ts = max(0, highest + choices.choose(pace + 1, "event time") - choices.choose(3, "late by"))
                highest = max(highest, ts)
                records.append(SimRecord(next_id, choices.choose(keys, "key"), ts, 1 + next_id % 3))
                next_id += 1
        return SimInput(drawn)

    def prefix(self, next_offsets: Mapping[str, int]) -> list[SimRecord]:
        return [r for split, records in self.splits.items() for r in records[: next_offsets.get(split, 0)]]

    def expected(self, has_real_windows: bool = False) -> Counter[Row]:
        """The output of a run without any fault."""
        records = [r for part in self.splits.values() for r in part]
        windows = expected_windows(records, WINDOW)
        if has_real_windows:
            windows += self.real_windows(self.splits)
        return expected_raw(records) + expected_running(records) + windows


def expected_raw(records: Sequence[SimRecord]) -> Counter[Row]:
    return Counter((RAW, r.id) for r in records)


def expected_running(records: Sequence[SimRecord]) -> Counter[Row]:
    counts = Counter(r.key for r in records)
    return Counter((RUNNING, key, n + 1) for key, count in counts.items() for n in range(count))


def expected_windows(records: Sequence[SimRecord], kind: int) -> Counter[Row]:
    windows = window_sums(records)
    return Counter((kind, key, end, count, total) for (key, end), (count, total) in windows.items())


def window_sums(records: Sequence[SimRecord]) -> dict[tuple[int, int], tuple[int, int]]:
    """(key, window end): (count, total)."""
    windows: dict[tuple[int, int], tuple[int, int]] = {}
    for r in records:
        place = (r.key, window_end(r.ts))
        count, total = windows.get(place, (0, 0))
        windows[place] = (count + 1, total + r.value)
    return windows


# --- Source -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SimSource:
    """Reads SimInput; which split and how many records a poll brings is a choice."""

    input: SimInput
    choices: Choices
    schema: pa.Schema = RECORD_SCHEMA
    record_type: type | None = None
    is_bounded: bool = True
    can_pause: bool = True

    def open_enumerator(self, job: str, clock: Clock) -> SplitEnumerator:
        return SimEnumerator(self.input)

    def open_reader(self, context: ReaderContext) -> SourceReader:
        return SimReader(self.input, self.choices)


class SimEnumerator:
    discovery_interval_ms: int | None = None

    def __init__(self, input: SimInput) -> None:
        self._input = input

    def initial_splits(self) -> Sequence[SplitState]:
        return [SplitState(split, {"next_offset": 0}) for split in self._input.splits]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            assert 0 <= split.position["next_offset"] <= len(self._input.splits[split.split_id])

    def close(self) -> None:
        pass


class SimReader:
    """One batch for each `credit` that the world grants, so that other things happen in between."""

    def __init__(self, input: SimInput, choices: Choices) -> None:
        self._input = input
        self._choices = choices
        self._next: dict[str, int] = {}
        self._reported: set[str] = set()
        self._paused: frozenset[str] = frozenset()
        self.credit = 0

    @property
    def has_more(self) -> bool:
        return bool(self._open())

    def _open(self) -> list[str]:
        """Splits that may be read and are not read to their end."""
        return [s for s in self._next if s not in self._reported and s not in self._paused]

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._next[split.split_id] = split.position["next_offset"]

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        open_splits = self._open()
        if not open_splits or self.credit == 0:
            return None
        self.credit -= 1
        split = open_splits[self._choices.choose(len(open_splits), "split to read")]
        records = self._input.splits[split]
        start = self._next[split]
        end = min(len(records), start + min(records_max, 1 + self._choices.choose(2, "records to read")))
        self._next[split] = end
        finished = frozenset({split}) if end == len(records) else frozenset()
        self._reported |= finished
        part = records[start:end]
        batch = pa.RecordBatch.from_arrays(
            [pa.array([getattr(r, name) for r in part], pa.int64()) for name in RECORD_SCHEMA.names],
            schema=RECORD_SCHEMA,
        )
        return Fetch(batch, np.zeros(len(part), np.uint16), (split,), finished=finished)

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState(split, {"next_offset": offset}) for split, offset in self._next.items()]

    def pause_splits(self, split_ids: Collection[str]) -> None:
        self._paused |= frozenset(split_ids)

    def resume_splits(self, split_ids: Collection[str]) -> None:
        self._paused -= frozenset(split_ids)

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


# --- The graph --------------------------------------------------------------------------------------


def sim_graph(
    source: SimSource,
    sink: Sink,
    max_parallelism: int,
    has_real_windows: bool = False,
    firings: Firings = ONCE,
    watermarks: WatermarkStrategy = TIMES,
    window: Window = TUMBLING,
    aggregates: Mapping[str, Aggregate] = AGGREGATES,
) -> JobGraph:
    """The job of the picture above. `firings`: of the real windows; no record is late, so they change
    nothing but the operator that is taken. `window`, `aggregates`: others, whose results the input knows."""
    targets: list[Target] = [ToEdge(0), InChain("raw")]
    src = SourceNode("src", source, watermarks, {MAIN: targets})
    state = StateDescription("tally", "counts", (KeyColumn("key", "int64"),))
    keyed = OperatorNode("tally", "tally", Tally, RESULT_SCHEMA, {MAIN: [InChain("out")]}, state=state)
    chains = [
        Chain(0, "src", {"src": src, "raw": SinkNode("raw", sink, RECORD_SCHEMA)}),
        Chain(1, "tally", {"tally": keyed, "out": SinkNode("out", sink, RESULT_SCHEMA)}),
    ]
    edges = [Edge(0, 0, 1, ByKey(("key",)), RECORD_SCHEMA, True, False)]
    if has_real_windows:
        windows = WindowAggregate("windows", ("key",), window, aggregates, RECORD_SCHEMA, firings=firings)
        made, to = windows.output_schema, {MAIN: [InChain("totals")]}
        node = OperatorNode("windows", "windows", windows.create, made, to, state=windows.description)
        chains.append(Chain(2, "windows", {"windows": node, "totals": SinkNode("totals", sink, made)}))
        edges.append(Edge(1, 0, 2, ByKey(("key",)), RECORD_SCHEMA, True, False))
        targets.append(ToEdge(1))
    return JobGraph("simulated", chains, edges, max_parallelism)
