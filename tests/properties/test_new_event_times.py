"""Windows behind map_batches(event_time=): the results are those of a naive reference, nothing is late, and
each window fires as soon as the watermark, which is held back, has passed it.

Whole tasks as a slot builds them, with two splits that are read at any pace and in any batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Fetch, SplitProgress, SplitState, WatermarkStrategy
from onceflow.runtime.control.messages import Assignment
from onceflow.runtime.exchange.wiring import LocalWiring
from onceflow.runtime.functions.lives import FunctionLives
from onceflow.runtime.graph.job_graph import Chain, JobGraph, OperatorNode
from onceflow.runtime.operators.aggregation.aggregates import count
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.records import Records
from onceflow.runtime.slot.slot_tasks import SlotTasks
from onceflow.runtime.slot.tasks import SlotBuilder, SlotEnvironment

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.int64()), ("happened", pa.int64())])
BEHIND_MS = 100
DISORDER_MS = 20
WINDOW_MS = 50
Row = tuple[str, int, int]
"""user, event time at the source, event time from then on."""


class Reader:
    """Gives what the test queues."""

    def __init__(self) -> None:
        self.queued: list[Fetch] = []

    def add_splits(self, splits: Sequence[SplitState]) -> None: ...

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        return self.queued.pop(0) if self.queued else None

    def snapshot(self) -> Sequence[SplitState]:
        return []

    def publish_offsets(self, splits: Sequence[SplitState]) -> None: ...

    def close(self) -> None: ...


@dataclass
class Ends:
    """The source and the sink."""

    reader: Reader
    written: list[Records]
    is_bounded: bool = True
    schema: pa.Schema = SCHEMA
    record_type: type | None = None

    def open_enumerator(self, job: str, clock: Any) -> Any: ...

    def open_reader(self, context: Any) -> Reader:
        return self.reader

    def check(self, schema: pa.Schema, uid: str) -> None: ...

    def open_writer(self, context: Any) -> Any:
        return self

    def write(self, records: Records) -> None:
        self.written.append(records)

    def close(self) -> None: ...


def renamed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with another time, and each a second time: of any number of rows the times are known."""
    return pa.concat_batches([batch, batch])


class Job:
    """One slot of source -> map_batches(event_time=) -> key_by -> window -> sink."""

    def __init__(self, behind: int = BEHIND_MS) -> None:
        self.ends = Ends(Reader(), [])
        self.graph = self._graph()
        self.graph = with_delay(self.graph, behind)
        self.tasks = self._tasks()

    def _graph(self) -> JobGraph:
        builder = JobGraphBuilder("job", max_parallelism=4)
        strategy = WatermarkStrategy.bounded_out_of_orderness(DISORDER_MS, event_time="ts")
        stream = builder.source(self.ends, watermarks=strategy, uid="source")
        stream = stream.map_batches(renamed, SCHEMA, event_time="happened", uid="new", behind=BEHIND_MS)
        totals = stream.key_by("user").window(tumbling(WINDOW_MS)).aggregate(n=count(), uid="totals")
        totals.select("user", "window_end", "n").sink_to(self.ends, uid="sink")  # type: ignore[arg-type]
        return builder.build()

    def _tasks(self) -> SlotTasks:
        splits = [SplitProgress(SplitState(f"t-{number}", {})) for number in range(2)]
        assignment = Assignment(0, 0, 1, "ab", 0, [], {"source": splits}, [], {})
        environment = SlotEnvironment(
            functions=FunctionLives(lambda trouble: None),
            clock=ManualClock(),
            staged_files=lambda uid: None,  # type: ignore[arg-type, return-value]
            read_states=lambda wanted: [],
            on_snapshot=lambda number, snapshot: None,
            on_wait=lambda uid, reason: None,
        )
        return SlotBuilder(self.graph, assignment, LocalWiring().slot(0, 1), environment).build()

    def read(self, split: int, rows: Sequence[Row], finished: Sequence[int] = ()) -> None:
        columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SCHEMA)]
        fetch = Fetch(
            pa.RecordBatch.from_arrays(columns, schema=SCHEMA),
            np.full(len(rows), split, np.uint16),
            ("t-0", "t-1"),
            finished=frozenset(f"t-{number}" for number in finished),
        )
        self.ends.reader.queued.append(fetch)
        while any([task.step() for task in self.tasks.tasks]):
            pass

    @property
    def results(self) -> Counter[tuple[str, int, int]]:
        """(user, end of the window, count), as often as written."""
        return Counter(tuple(row.values()) for part in self.ends.written for row in part.batch.to_pylist())

    @property
    def late(self) -> int:
        return sum(task.counters.late_records for task in self.tasks.tasks)


def with_delay(graph: JobGraph, behind: int) -> JobGraph:
    """The graph; with another delay than was asked for, a planted fault."""

    def changed(chain: Chain) -> Chain:
        nodes = {
            uid: replace(node, delays_watermark_ms=behind)
            if isinstance(node, OperatorNode) and node.delays_watermark_ms
            else node
            for uid, node in chain.nodes.items()
        }
        return replace(chain, nodes=nodes)

    return replace(graph, chains=[changed(chain) for chain in graph.chains])


def expected(rows: Sequence[Row]) -> Counter[tuple[str, int, int]]:
    """Every row counts twice, in the window of its new time."""
    counts = Counter((user, at // WINDOW_MS * WINDOW_MS + WINDOW_MS) for user, _, at in rows)
    return Counter((user, end, 2 * n) for (user, end), n in counts.items())


def test_windows_behind_new_event_times_are_those_of_a_naive_list() -> None:
    rows_of_a_batch = st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.integers(0, 60),  # how far time goes on
            st.integers(0, DISORDER_MS),  # how far the row is out of order
            st.integers(-200, BEHIND_MS),  # how much earlier it happened
        ),
        max_size=6,
    )

    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 1), rows_of_a_batch), max_size=12))
    def check(batches: list[tuple[int, list[tuple[str, int, int, int]]]]) -> None:
        job, all_rows = Job(), []
        now, newest = [1_000, 1_000], {}
        for split, moves in batches:
            rows: list[Row] = []
            for user, step, disorder, earlier in moves:
                now[split] += step
                ts = now[split] - disorder
                newest[split] = max(newest.get(split, 0), ts)
                rows.append((user, ts, ts - earlier))
            all_rows += rows
            job.read(split, rows)
            watermark = min(newest.values()) - DISORDER_MS - 1 - BEHIND_MS if len(newest) == 2 else 0
            due = {key for key in expected(all_rows) if key[1] - 1 <= watermark}
            assert set(job.results) == due, "what the watermark has passed, and nothing else"
        job.read(0, [], finished=(0, 1))
        assert job.results == expected(all_rows)
        assert job.late == 0

    check()


def test_a_watermark_that_is_not_held_back_makes_rows_late() -> None:
    """The planted fault, and what was until now: the source's watermark passes as it is."""
    for behind, late in ((BEHIND_MS, 0), (0, 2)):
        job = Job(behind)
        job.read(0, [("a", 1_000, 900)])
        job.read(1, [("a", 1_000, 1_000)])
        job.read(0, [("a", 1_001, 901)])
        job.read(0, [], finished=(0, 1))
        assert job.late == (0 if behind else late), behind
