"""JobRun: a user's job in a test, step by step, in one process and one thread.

What runs is the product: its coordinator, slots, tasks, gates, operators, snapshots and restores, over a
store in memory. Only sources, sinks and the two clocks are the test's. Every call returns when all that it
caused has happened, so a test needs no waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from onceflow.runtime.api.job import Job
from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.options import CheckpointOptions
from onceflow.runtime.checkpoint.restart import NoRestart
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.control.message import Message
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OnceflowError, UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.functions.parameters import Parameters
from onceflow.runtime.functions.resolve import resolve
from onceflow.runtime.records import RowKind
from onceflow.runtime.state.overflow import UNLIMITED
from onceflow.runtime.testing.sim_driver import SimDriver
from onceflow.runtime.testing.sim_slot import SimSlot, SimSlotOptions, SimWiring
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.records_of_columns import UnmadeRecordError, records_from_batch
from onceflow.testing.kept_rows import kept_rows
from onceflow.testing.script import Rows
from onceflow.testing.stage import Stage, stage_of

T = TypeVar("T")

_FOREVER_MS = 10**12
"""The coordinator's own clock moves only when a checkpoint is asked for."""

_WAITS_MAX = 1_000


class JobRun:
    """A job that runs as far as its test says; made by `run`. Rows that come to a sink are in `rows`, and in
    an attribute of the sink's name: `run.totals`."""

    _state = UNLIMITED

    def __init__(self, stage: Stage, parallelism: int, params: Parameters) -> None:
        self._stage, self._params = stage, params
        self._store = MemoryStore("test")
        self.clock = ManualClock()
        """The processing time that the job sees, from 0 on: see `advance_clock`."""
        self._parallelism = parallelism
        self._slots: dict[int, SimSlot] = {}
        self._next_peer = 1
        self._start()

    def __enter__(self) -> JobRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> list[dict[str, Any]]:
        if name.startswith("_"):
            raise AttributeError(name)
        by_name = {uid.replace("-", "_"): uid for uid in self._stage.outputs}
        return self.rows(by_name.get(name, name))

    # --- What a test does

    def push(self, **rows: Rows) -> JobRun:
        """Give rows to sources by their uids (`-` is `_` in a name), and do all that they cause."""
        for uid, its in self._stage.by_uid(rows).items():
            script = self._stage.script(uid)
            new = set(its) - set(script.splits) if isinstance(its, dict) else set()
            if new:
                raise UsageError(f"source {uid!r} has no split {sorted(new)}: name all of them in run()")
            script.add(its)
        return self._settle()

    def advance_to(self, time: str | int, source: str | None = None) -> JobRun:
        """Event time comes to `time` (a duration since the epoch such as "10 s", or ms) in one source or in
        all: windows that end by then and timers that are due fire. No later row is at or before it."""
        watermark_ms = duration_ms(time, "advance_to")
        scripts = self._stage.scripts.values() if source is None else [self._stage.script(source)]
        for script in scripts:
            script.mark(watermark_ms)
        return self._settle()

    def advance_clock(self, duration: str | int) -> JobRun:
        """Processing time goes on by `duration`: processing-time timers that are due fire."""
        self.clock.advance(duration_ms(duration, "advance_clock"))
        for slot in self._slots.values():
            slot.is_idle = False
        return self._settle()

    def finish(self) -> JobRun:
        """The sources are bounded and at their end: every window and event-time timer fires, and the job ends
        after its last checkpoint. Processing time goes on while calls wait for their next attempt."""
        for script in self._stage.scripts.values():
            script.has_ended = True
        began_ms = self.advance_clock(0).clock.now_ms()
        for tick in range(_WAITS_MAX):
            if self._driver.finished is not None:
                return self
            if tick > 2:  # a last checkpoint would have ended it: calls wait for their next attempt
                self._skip_pause((self.clock.now_ms() - began_ms) // 100)
            self._tick()
        waited = f"the job does not end: after {_WAITS_MAX:,} waits its calls are still to be asked again"
        raise OnceflowError(f"{waited}; write `retries=` with an end, or `timeout=`")

    def checkpoint(self) -> JobRun:
        """A checkpoint of all that has happened; what came to sinks is committed."""
        before = self._completed
        self._tick()
        if self._completed == before:
            raise OnceflowError(f"the checkpoint did not complete: {self._driver!r}")
        return self

    def crash(self, parallelism: int | None = None) -> JobRun:
        """Kill everything, and start it again from the last checkpoint, with as many slots as before or as
        given. What sinks had taken since that checkpoint is gone; sources are read again from there."""
        self._slots.clear()
        self._parallelism = parallelism or self._parallelism
        self._start()
        return self

    def restart(self, parallelism: int | None = None) -> JobRun:
        """A checkpoint, and then `crash`: nothing that a sink shows may differ."""
        return self.checkpoint().crash(parallelism)

    # --- What a test sees

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """The rows that came to a sink, committed or not, in the order in which they came to each subtask."""
        return [row for records in self._stage.output(sink).rows for row in records.batch.to_pylist()]

    def committed(self, sink: str) -> list[dict[str, Any]]:
        """The rows of completed checkpoints only: what a reader of the real output would see."""
        return [row for records in self._stage.output(sink).committed for row in records.batch.to_pylist()]

    def records(self, sink: str, record_type: type[T]) -> list[T]:
        """The rows as records of a type that has their columns as its fields. Raises UsageError for a row
        that the type does not take."""
        batches = [records.batch for records in self._stage.output(sink).rows]
        try:
            return [record for batch in batches for record in records_from_batch(batch, record_type)]
        except UnmadeRecordError as error:
            raise UsageError(f"sink {sink!r}: {type_name(record_type)} can't be made: {error}") from error

    def changes(self, sink: str) -> list[tuple[RowKind, dict[str, Any]]]:
        """The rows with what each does: insert, update before and after, delete."""
        found: list[tuple[RowKind, dict[str, Any]]] = []
        for records in self._stage.output(sink).rows:
            kinds = [0] * len(records) if records.kind is None else records.kind.tolist()
            found += zip(map(RowKind, kinds), records.batch.to_pylist(), strict=True)
        return found

    def state(self, uid: str, table: str | None = None) -> list[dict[str, Any]]:
        """The state of an operator, row by row, as a checkpoint that is taken for it has it, without keys
        that have forgotten everything. `table`: which, where an operator has several."""
        self.checkpoint()
        return kept_rows(self._store, uid, table)

    @property
    def late_records(self) -> int:
        """Rows that came after their window had fired, since the last start."""
        return sum(slot.counter("late_records") for slot in self._slots.values())

    def close(self) -> None:
        """Let go of what the job's functions hold."""
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()

    @property
    def _completed(self) -> int:
        """The position in the log behind the last completed checkpoint."""
        return max((position for position, _ in read_log(self._store).completed()), default=-1)

    def _start(self) -> None:
        options = CheckpointOptions(
            interval_ms=1, min_pause_ms=1, persist_retry_ms=1, restart=NoRestart(), retained=1
        )
        self._time = ManualClock()
        self._driver = SimDriver(
            self._stage.graph,
            self._store,
            self._time,
            self._parallelism,
            options,
            self._start_slots,
            self._tell,
            lambda mark: None,
        )
        self._driver.start()
        self._settle()

    def _start_slots(self, driver: SimDriver, attempt: int, slots: int) -> Sequence[int]:
        wiring = SimWiring(slots)
        self._wiring = wiring
        peers = range(self._next_peer, self._next_peer + slots)
        self._next_peer = peers.stop
        options = SimSlotOptions(params=self._params, state=self._state)
        for peer in peers:
            self._slots[peer] = SimSlot(
                attempt, peer, self._stage.graph, wiring, self._store, self.clock, self._post, options
            )
        return list(peers)

    def _tell(self, peer: int, message: Message) -> bool:
        if peer in self._slots:
            self._slots[peer].tell(message)  # type: ignore[arg-type]  # what a driver sends
        return peer in self._slots

    def _post(self, peer: int, message: Message) -> None:
        self._driver.post(peer, message)  # type: ignore[arg-type]  # what a slot sends

    def _tick(self) -> None:
        """The coordinator's time goes on to what it waits for."""
        if self._driver.coordinator.phase is JobPhase.RUNNING:
            wait_ms = self._driver.coordinator.wake_at_ms - self._time.monotonic_ms()
            self._time.advance(max(0.0, min(wait_ms, _FOREVER_MS)))
            self._driver.handle(ev.Tick())
        self._settle()

    def _skip_pause(self, least_ms: int) -> None:
        """The clock goes on to where a slot looks again, and so far at least: many calls have many pauses."""
        times = [at_ms for slot in self._slots.values() if (at_ms := slot.wake_at_ms) is not None]
        self.advance_clock(max(10, least_ms, min(times, default=0) - self.clock.now_ms()))

    def _settle(self) -> JobRun:
        """Go on until nothing can happen. Raises what a function of the user's raised."""
        while self._turn():
            pass
        finished = self._driver.finished
        if finished is not None and finished.outcome not in (ev.Outcome.FINISHED, ev.Outcome.STOPPED):
            raise OnceflowError(finished.reason)
        return self

    def _turn(self) -> bool:
        """One thing of each kind. False: there was none."""
        driver, did = self._driver, False
        while driver.io_effects:
            driver.run_io()
            did = True
        while driver.answers:
            driver.read_answer()
            did = True
        for peer in list(driver.mail):
            driver.read_mail(peer)
            did = True
        for channel in list(self._wiring.channels.values()) if self._slots else ():
            if channel.in_flight:
                channel.deliver(len(channel.in_flight))
                did = True
        for peer, slot in list(self._slots.items()):
            did = self._run_slot(peer, slot) or did
        return did

    def _run_slot(self, peer: int, slot: SimSlot) -> bool:
        if slot.is_over:
            slot.close()
            del self._slots[peer]
            return True
        for jobs in (slot.background.writes, slot.background.commits):
            if jobs:
                slot.background.run(jobs, 0)
                slot.is_idle = False
                return True
        if slot.can_step:
            slot.step()
            return True
        return False


@explained
def run(job: Job, *, parallelism: int = 1, params: Mapping[str, Any] | None = None, **inputs: Rows) -> JobRun:
    """Start a job in this process, with these rows for its sources by their uids (`-` is `_` in a name), and
    return when they are through. No broker, no Spark, no files. See JobRun for what can be done then; use it
    in a `with`, so that what functions have opened is closed.

    Rows are records of the source's type, dicts, or an Arrow table; a dict of these by split, to have several
    splits. `params`: as for Job.run. Raises UsageError for what names no source or is no row of it, and what
    a function of the job's raises.
    """
    stage = stage_of(job.build(), {})
    values = resolve(job.params, params or {})
    for uid, rows in stage.by_uid(inputs).items():
        if isinstance(rows, dict):
            stage.script(uid).splits.clear()
        stage.script(uid).add(rows)
    return JobRun(stage, parallelism, values)
