"""A job on threads whose records and results are in this process: run it, stop it, change it, run again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.api.job import Job
from onceflow.runtime.api.run_options import run_options
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Committable, Fetch, SplitState, WatermarkStrategy
from onceflow.runtime.driver.driver import JobDriver
from onceflow.runtime.driver.result import JobResult
from onceflow.runtime.graph.ended import ended
from onceflow.runtime.hosts.local import LocalLauncher
from onceflow.runtime.records import Records
from onceflow.runtime.state.overflow import StateOptions

SCHEMA = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        pa.field("amount", pa.int64(), nullable=False),
        pa.field("price", pa.float64()),
        pa.field("ts", pa.int64(), nullable=False),
    ]
)
RECORDS_PER_POLL = 100
DEADLINE_S = 120


@dataclass
class RecordsInMemory:
    """A source with one split. More records may be appended between two runs; unless it is bounded, or ends
    before record `until`, it does not end."""

    rows: list[tuple[Any, ...]]
    schema: pa.Schema = SCHEMA
    record_type: type | None = None
    is_bounded: bool = False
    discovery_interval_ms: int | None = None
    until: int | None = None
    was_read: threading.Event = field(default_factory=threading.Event)

    def open_enumerator(self, job: str, clock: Any) -> RecordsInMemory:
        return self

    def initial_splits(self) -> Sequence[SplitState]:
        return self.bounded([SplitState("all", {"next_offset": 0})], None)

    def ended(self, until: Any) -> RecordsInMemory:
        return replace(self, is_bounded=True, until=until)

    def bounded(self, splits: Sequence[SplitState], finished: Any) -> Sequence[SplitState]:
        stop = {} if self.until is None else {"stop": self.until}
        return [SplitState(each.split_id, {**stop, **each.position}) for each in splits]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass

    def open_reader(self, context: Any) -> _Reader:
        return _Reader(self)


class _Reader:
    def __init__(self, source: RecordsInMemory) -> None:
        self._source = source
        self._next: int | None = None
        """None: the split is another subtask's."""
        self._stop: int | None = None
        self._has_ended = False

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._next, self._stop = split.position["next_offset"], split.position.get("stop")

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        if self._next is None:
            return None
        part = self._source.rows[: self._stop][self._next :][: min(records_max, RECORDS_PER_POLL)]
        if not part:
            self._source.was_read.set()
            return self._end() if self._source.is_bounded and not self._has_ended else None
        self._next += len(part)
        columns = [
            pa.array(values, f.type) for values, f in zip(zip(*part, strict=True), SCHEMA, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        offsets = np.arange(self._next - len(part), self._next)
        return Fetch(batch, np.zeros(len(part), np.uint16), ("all",), offset=offsets)

    def _end(self) -> Fetch:
        self._has_ended = True
        nothing = pa.RecordBatch.from_pylist([], SCHEMA)
        return Fetch(
            nothing, np.zeros(0, np.uint16), ("all",), np.zeros(0, np.int64), finished=frozenset({"all"})
        )

    def snapshot(self) -> Sequence[SplitState]:
        if self._next is None:
            return []
        stop = {} if self._stop is None else {"stop": self._stop}
        return [SplitState("all", {"next_offset": self._next, **stop})]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Results:
    """A sink: rows that were committed, once, as dictionaries."""

    visible: list[dict[str, Any]] = field(default_factory=list)
    committed: set[tuple[str, int]] = field(default_factory=set)
    """Who has committed, and for which checkpoint."""

    def check(self, schema: pa.Schema, uid: str) -> None:
        pass

    def open_writer(self, context: Any) -> _Writer:
        return _Writer(self, context)

    def take(self, owner: str, checkpoint_id: int, rows: Sequence[dict[str, Any]]) -> None:
        if (owner, checkpoint_id) not in self.committed:
            self.committed.add((owner, checkpoint_id))
            self.visible.extend(rows)


class _Writer:
    def __init__(self, results: Results, context: Any) -> None:
        self._results = results
        self._uid = context.uid
        self._owner = str(context.subtask)
        self._rows: list[dict[str, Any]] = []
        """What is not committed yet; so what a checkpoint promised that is aborted is in the next one."""
        self._frozen: dict[int, int] = {}
        """How many of them each checkpoint promises."""

    def recover(self, committables: Sequence[Committable]) -> None:
        for committable in committables:
            self._results.take(committable.owner, committable.checkpoint_id, committable.payload["rows"])

    def write(self, records: Records) -> None:
        self._rows += records.batch.to_pylist()

    def pre_commit(self, checkpoint_id: int) -> _PreCommit:
        self._frozen[checkpoint_id] = len(self._rows)
        return _PreCommit(Committable(self._uid, self._owner, checkpoint_id, {"rows": [*self._rows]}))

    def commit(self, checkpoint_id: int) -> None:
        count = self._frozen[checkpoint_id]
        self._results.take(self._owner, checkpoint_id, self._rows[:count])
        del self._rows[:count]
        self._frozen = {n: kept - count for n, kept in self._frozen.items() if n > checkpoint_id}

    def close(self) -> None:
        pass


@dataclass
class _PreCommit:
    committable: Committable

    def stage(self) -> Committable:
        return self.committable


class Events:
    """A reporter that keeps everything."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Mapping[str, Any]]] = []
        self._heard = threading.Condition()

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        with self._heard:
            self.all.append((name, dict(fields)))
            self._heard.notify_all()

    def progress(self, progress: Any) -> None:
        pass

    def close(self) -> None:
        pass

    def named(self, name: str) -> list[Mapping[str, Any]]:
        return [fields for n, fields in self.all if n == name]

    def wait(self, name: str, count: int = 1) -> None:
        """Wait until so many of these events have come, or the run is over."""
        with self._heard:
            self._heard.wait_for(
                lambda: len(self.named(name)) >= count or self.named("job_finished"), DEADLINE_S
            )


Build = Callable[[Stream[Any]], Mapping[str, Stream[Any]]]
"""From the records to what goes into each sink, by the sink's uid."""


@dataclass
class Run:
    """How a run went."""

    result: JobResult
    events: Events
    visible: dict[str, list[dict[str, Any]]]
    """What this run has made visible, by the sink's uid."""


class Folder:
    """A checkpoint folder and the input that its job reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[tuple[Any, ...]] = []

    def run(
        self,
        build: Build,
        *rows: tuple[Any, ...],
        has_event_time: bool = True,
        slots: int = 1,
        checkpoint_interval: str = "50 ms",
        drains: bool = False,
        state: StateOptions | None = None,
        max_parallelism: int = 8,
        until: int | None = None,
        later: Sequence[Sequence[tuple[Any, ...]]] = (),
        **options: Any,
    ) -> Run:
        """Read what is there and these rows (user, amount, price, ts); then stop after a last checkpoint,
        drained before if so asked. `later`: more rows, each part after a checkpoint. `until`: as `--until`.
        """
        self.rows += rows
        source = RecordsInMemory(self.rows)
        job = JobGraphBuilder("job", max_parallelism=max_parallelism)
        watermarks = WatermarkStrategy("ts", 0) if has_event_time else None
        stream = job.source(source, watermarks=watermarks, uid="src")
        sinks: dict[str, Results] = {}
        for uid, made in build(stream).items():
            sinks[uid] = Results()
            made.sink_to(sinks[uid], uid=uid)
        events = Events()
        chosen = run_options(
            str(self.path), master=f"threads[{slots}]", checkpoint_interval=checkpoint_interval, **options
        )
        chosen = chosen if state is None else replace(chosen, state=state)
        graph = job.build() if until is None else ended(job.build(), lambda uid: until)
        driver = JobDriver(graph, chosen, LocalLauncher(slots), SystemClock(), events)
        results: list[JobResult] = []
        thread = threading.Thread(target=lambda: results.append(driver.run()))
        thread.start()
        events.wait("slots_started")
        deadline_s = time.monotonic() + DEADLINE_S
        for part in (*later, ()):
            while not (source.was_read.wait(0.05) or events.named("job_finished")):
                assert time.monotonic() < deadline_s, events.all
            if part:
                events.wait("checkpoint_completed", 1 + len(events.named("checkpoint_completed")))
                source.was_read.clear()
                self.rows += part
        driver.request_stop(drains)
        thread.join(DEADLINE_S)
        assert results, events.all
        return Run(results[0], events, {uid: sink.visible for uid, sink in sinks.items()})

    def run_in_python(self, build: Build, **options: Any) -> Run:
        """`Job.run` of what is there, as a bounded source."""
        source = RecordsInMemory(self.rows, is_bounded=True)
        job = Job("job", max_parallelism=8)
        sinks: dict[str, Results] = {}
        for uid, made in build(job.source(source, watermarks=WatermarkStrategy("ts", 0), uid="src")).items():
            sinks[uid] = Results()
            made.sink_to(sinks[uid], uid=uid)
        events = Events()
        result = job.run(str(self.path), master="threads[1]", restart="none", reporter=events, **options)
        return Run(result, events, {uid: sink.visible for uid, sink in sinks.items()})


@pytest.fixture(scope="session")
def in_folder() -> type[Folder]:
    return Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "checkpoints")
