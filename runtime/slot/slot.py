"""Slot: subtask i of every chain, run by one thread; reports to the driver.

`step` does a little of everything that is there to do, downstream tasks first (what is in flight goes
out before more is read), and never waits. Writing snapshots and committing go on in the background.

The order of a checkpoint in a slot, and what a crash leaves in each gap:

1. Trigger: the barrier is queued at the sources. Crash: nothing has happened.
2. Each task snapshots as the barrier reaches it; each snapshot is written at once. Crash: files of a
   dead attempt, swept later.
3. All tasks' snapshots are durable: Acked. Crash: as 2, unless the manifest was persisted meanwhile;
   then the next attempt restores from it.
4. Commit: the manifest is durable; the sinks make their output visible. Crash: the next attempt's
   `recover` commits from the manifest.
5. Known to be visible: Committed. Crash: `recover` finds it done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from onceflow.runtime.background import Background
from onceflow.runtime.checkpoint.fingerprints import is_unavailable
from onceflow.runtime.checkpoint.manifest import SlotSnapshot, StateHandle
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import SplitProgress
from onceflow.runtime.control.heartbeat import alignment_pause_ms
from onceflow.runtime.control.live_messages import AskRows
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import (
    Abort,
    Acked,
    AddSplits,
    Alive,
    Assignment,
    Commit,
    Committed,
    Declined,
    Drain,
    Drained,
    GroupWatermarks,
    LowestWatermarks,
    Progress,
    Resume,
    Running,
    Shutdown,
    ToSlot,
    Trigger,
)
from onceflow.runtime.errors import CorruptCheckpointError, Indeterminate, Retryable
from onceflow.runtime.operators.operator import FrozenState
from onceflow.runtime.records import Barrier
from onceflow.runtime.slot.live_rows import rows_of_keys
from onceflow.runtime.slot.slot_tasks import SlotTasks
from onceflow.runtime.slot.task import Task
from onceflow.runtime.slot.task_reports import PendingSnapshot, TaskSnapshot, WrittenSnapshot
from onceflow.runtime.slot.usage import SlotUsage
from onceflow.runtime.slot.watermark_alignment import SlotReports

STEPS_PER_TASK, TURN_MS = 32, 5.0
"""How many elements, for how long, a task may take before commands and sockets are looked at again: a
trigger must not wait behind a backlog."""
SAY_COMMITTING_AFTER_MS = 2_000


class SlotControl(Protocol):
    """The slot's end of the control connection."""

    def poll(self) -> ToSlot | None: ...

    def send(self, message: Message) -> None: ...


class Slot:
    """One slot of one attempt. All methods but `waiting_for` are called by the slot's thread."""

    def __init__(
        self,
        assignment: Assignment,
        control: SlotControl,
        background: Background,
        clock: Clock,
        write_state: Callable[[int, str, FrozenState], StateHandle],
        steps_per_task: int = STEPS_PER_TASK,
        report_pause_ms: float | None = None,
    ) -> None:
        """`write_state(checkpoint_id, uid, state)` makes an operator's state durable, on any thread.
        `report_pause_ms`: between two reports on how far its splits are; None: as short as it may be."""
        pause_ms = alignment_pause_ms(assignment.parallelism) if report_pause_ms is None else report_pause_ms
        self._reports = SlotReports(pause_ms)
        self._steps_per_task = steps_per_task
        self._assignment = assignment
        self._control = control
        self._background = background
        self._clock = clock
        self.usage = SlotUsage(clock.monotonic_ms())
        self._write_state = write_state
        self._pending: dict[int, PendingSnapshot] = {}
        self._splits_of: dict[int, Mapping[str, Sequence[SplitProgress]]] = {}
        self._waiting: dict[str, tuple[float, str]] = {}
        self._committing: tuple[float, str] | None = None
        self._first_record_ms: int | None = None
        self._said_drained = False
        self._slot_tasks: SlotTasks | None = None
        self.shutdown_reason: str | None = None
        """Set once the driver has ended the attempt: stop stepping."""

    def start(self, slot_tasks: SlotTasks) -> None:
        """Tasks are built and wired. Records may flow at once; the sinks commit in the background what
        the restored checkpoint promised, and then the slot says that it runs."""
        self._slot_tasks = slot_tasks
        if self._assignment.is_drained:
            slot_tasks.drain()
        promised = [
            (writer, self._assignment.committables.get(uid, ())) for uid, writer in slot_tasks.writers.items()
        ]

        def recover() -> None:
            for writer, committables in promised:
                writer.recover(committables)

        def done(_: None) -> None:
            self._committing = None
            self._control.send(Running(attempt=self._assignment.attempt))

        restored = f"checkpoint {self._assignment.restored_checkpoint_id}, which was restored"
        self._committing = (self._clock.monotonic_ms(), restored)
        self._background.commit(recover, done)

    def step(self) -> bool:
        """Do what there is to do. False: nothing, so the caller may wait a little. Raises whatever a
        task, a background job or a command raised: then the attempt is over."""
        did_something = self._take_commands()
        did_something = self._background.deliver() or did_something
        if self.shutdown_reason is not None:
            return False
        tasks = self._tasks.tasks
        for task in reversed(tasks):
            did_something = self._take_turn(task) or did_something
        if self._first_record_ms is None and any(task.counters.records_in for task in tasks):
            self._first_record_ms = self._clock.now_ms()
            self._control.send(self.progress())
        self._report_watermarks()
        if not self._said_drained and all(task.is_drained for task in tasks):
            self._said_drained = True
            self._control.send(self.progress())
            self._control.send(Drained(attempt=self._assignment.attempt))
        return did_something

    def _report_watermarks(self) -> None:
        if lowest := self._tasks.lowest_watermarks:
            waits = self._tasks.has_paused
            if self._reports.is_due(lowest, waits, self._clock.monotonic_ms()):
                self._control.send(LowestWatermarks(self._assignment.attempt, lowest, waits))

    def _take_turn(self, task: Task) -> bool:
        """Step a task until it has nothing to do or its turn is over. True if it did anything."""
        over_ms = self._clock.monotonic_ms() + TURN_MS
        for steps in range(self._steps_per_task):
            if not task.step():
                return steps > 0
            if self._clock.monotonic_ms() >= over_ms:
                break
        return True

    def on_snapshot(self, number: int, snapshot: TaskSnapshot) -> None:
        """A task has reached a barrier: write its snapshot in the background."""
        checkpoint_id = snapshot.barrier.checkpoint_id
        now_ms = self._clock.monotonic_ms()
        pending = self._pending.setdefault(
            checkpoint_id, PendingSnapshot(set(range(len(self._tasks.tasks))), first_ms=now_ms)
        )
        pending.splits.update(snapshot.splits)
        pending.last_ms = now_ms
        pending.pause_ms = max(pending.pause_ms, snapshot.pause_ms)

        def write() -> WrittenSnapshot:
            try:
                states = [self._write_state(checkpoint_id, uid, s) for uid, s in snapshot.states.items()]
                return WrittenSnapshot(states, [p.stage() for p in snapshot.pre_commits.values()])
            except (OSError, Retryable, Indeterminate, CorruptCheckpointError) as error:
                said = f"slot {self._assignment.slot} can't write its snapshot: {error}"
                return WrittenSnapshot(failure=said, is_unavailable=is_unavailable(error))

        self._background.write(write, lambda written: self._on_written(checkpoint_id, number, written))

    def waiting_for(self, uid: str, reason: str) -> None:
        """A connector waits for something outside. From any thread; shown for a few seconds."""
        self._waiting[uid] = (self._clock.monotonic_ms(), reason)

    def progress(self) -> Progress:
        """The counters as they are; may be called from another thread for a sign of life."""
        now_ms = self._clock.monotonic_ms()
        waiting = [
            reason for at_ms, reason in list(self._waiting.values()) if reason and now_ms - at_ms < 3_000
        ]
        if (committing := self._committing) is not None and now_ms - committing[0] > SAY_COMMITTING_AFTER_MS:
            seconds = (now_ms - committing[0]) / 1000
            waiting.append(f"the sinks commit {committing[1]}, since {seconds:.0f} s")
        tasks = self._slot_tasks
        waiting += [] if tasks is None else tasks.held
        heads = [] if tasks is None else zip(tasks.heads, tasks.tasks, strict=True)
        return Progress(
            attempt=self._assignment.attempt,
            tasks={head: task.counters.as_dict() for head, task in heads},
            waiting=waiting,
            first_record_ms=self._first_record_ms,
            busy_ratio=self.usage.busy_ratio,
            rss_bytes=self.usage.rss_bytes,
            metrics=[] if tasks is None else tasks.metrics.read(),
        )

    @property
    def _tasks(self) -> SlotTasks:
        assert self._slot_tasks is not None, "start comes first"
        return self._slot_tasks

    def _take_commands(self) -> bool:
        took = False
        while self.shutdown_reason is None and (command := self._control.poll()) is not None:
            self._obey(command)
            took = True
        return took

    def _obey(self, command: ToSlot) -> None:
        match command:
            case Trigger(checkpoint_id=checkpoint_id, is_last=is_last):
                for task in self._tasks.tasks:
                    task.trigger(Barrier(checkpoint_id, is_last))
            case Commit(checkpoint_id=checkpoint_id):
                self._commit(checkpoint_id)
            case Abort(checkpoint_id=checkpoint_id):
                self._pending.pop(checkpoint_id, None)
                self._splits_of.pop(checkpoint_id, None)
                self._tasks.abort(checkpoint_id)
            case AskRows():
                self._control.send(rows_of_keys(self._assignment, self._tasks.operators, command))
            case Resume() | Drain() | AddSplits() | GroupWatermarks():
                self._tell_sources(command)
            case Shutdown(reason=reason):
                self.shutdown_reason = reason
            case Assignment() | Alive():
                raise AssertionError(f"no command for a slot that runs: {command}")

    def _tell_sources(self, command: Resume | Drain | AddSplits | GroupWatermarks) -> None:
        match command:
            case Resume(checkpoint_id=checkpoint_id):
                self._tasks.resume(checkpoint_id)
            case Drain():
                self._tasks.drain()
            case AddSplits(uid=uid, splits=splits):
                self._tasks.sources[uid].add_splits(splits)
            case GroupWatermarks(by_group=by_group):
                self._tasks.align(by_group)

    def _on_written(self, checkpoint_id: int, number: int, written: WrittenSnapshot) -> None:
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            return  # aborted meanwhile; the files are swept
        if written.failure is not None:
            del self._pending[checkpoint_id]
            attempt, why, away = self._assignment.attempt, written.failure, written.is_unavailable
            self._control.send(
                Declined(attempt=attempt, checkpoint_id=checkpoint_id, reason=why, is_unavailable=away)
            )
            return
        pending.states += written.states
        pending.committables += written.committables
        pending.unwritten.discard(number)
        if pending.unwritten:
            return
        del self._pending[checkpoint_id]
        self._splits_of[checkpoint_id] = pending.splits
        self._control.send(self.progress())  # so that the counters are right also at the last one
        snapshot = SlotSnapshot(
            states=tuple(pending.states),
            splits=pending.splits,
            committables=tuple(pending.committables),
            alignment_ms=round(pending.last_ms - pending.first_ms),
            sync_ms=round(pending.pause_ms),
            write_ms=round(self._clock.monotonic_ms() - pending.last_ms),
        )
        self._control.send(
            Acked(attempt=self._assignment.attempt, checkpoint_id=checkpoint_id, snapshot=snapshot)
        )

    def _commit(self, checkpoint_id: int) -> None:
        # Of an aborted checkpoint a task may have snapshotted after the abort: nobody waits for it.
        self._pending = {n: pending for n, pending in self._pending.items() if n > checkpoint_id}
        slot_tasks = self._tasks

        def done(_: None) -> None:
            self._committing = None
            self._control.send(Committed(attempt=self._assignment.attempt, checkpoint_id=checkpoint_id))
            for uid, splits in self._splits_of.pop(checkpoint_id, {}).items():
                self._tasks.sources[uid].checkpoint_completed(splits)

        self._committing = (self._clock.monotonic_ms(), f"checkpoint {checkpoint_id}")
        self._background.commit(lambda: slot_tasks.commit(checkpoint_id), done)
