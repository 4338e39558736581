"""Pure: trigger, collect acks, persist, commit, subsume, abort; restart, stop, finish.

Rule: all moves of a job, an attempt and a checkpoint are in this file. Events in, effects out; no I/O,
no clock. Whoever carries out effects (`driver.py` for the store, the slots' control channel for the
rest) may do so in any order that keeps the order of effects to the same receiver, and may crash at any
point: what is durable decides what the next driver does (`recovery.py`).

    OPENING -> STARTING -> RUNNING -> (MARKING) -> OVER
       ^__________|___________|
          RESTARTING, after a failure

One checkpoint at a time, its commit included: n+1 is triggered when all slots have committed n. So a
manifest never depends on an earlier one being committed later, and at recovery only the latest matters.
"""

from __future__ import annotations

from collections.abc import Callable

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.events import Effect, Event, Outcome
from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.options import CheckpointOptions
from onceflow.runtime.checkpoint.pending import PendingCheckpoint, Phase
from onceflow.runtime.checkpoint.scale import Scale
from onceflow.runtime.checkpoint.stopping import NEVER as _NEVER
from onceflow.runtime.checkpoint.stopping import Stopping
from onceflow.runtime.checkpoint.verdict import Failure, FailureRow, GiveUp, Restart
from onceflow.runtime.contracts import Json


class Coordinator:
    """One per run of a job, for all its attempts.

    `handle(event, now_ms)` with a monotonic clock in ms; call it with Tick at `wake_at_ms` at the
    latest. `wall_offset_ms` is what makes wall-clock time of it, for the manifests. `on_mark` hears of
    rare moves, so that tests can assert that they were reached.
    """

    def __init__(
        self,
        slots: int,
        max_parallelism: int,
        options: CheckpointOptions,
        wall_offset_ms: int = 0,
        on_mark: Callable[[str], None] = lambda mark: None,
        has_committers: bool = False,
    ) -> None:
        """`has_committers`: some sinks commit in the driver, once for all their writers."""
        assert 1 <= slots <= max_parallelism, (slots, max_parallelism)
        self._scale = Scale(slots)
        self._max_parallelism = max_parallelism
        self._options = options
        self._wall_offset_ms = wall_offset_ms
        self._mark = on_mark
        self._has_committers = has_committers
        self.phase = JobPhase.RESTARTING
        self.attempt: int | None = None
        """The attempt that is being started or runs."""
        self.last_completed_id: int | None = None
        self._restored: CheckpointManifest | None = None
        self._next_checkpoint_id = 0
        self._pending: PendingCheckpoint | None = None
        self._drained: set[int] = set()
        self._deadline_ms = _NEVER
        """When patience with the job's phase ends; in RESTARTING: when to open the next attempt."""
        self._trigger_at_ms = _NEVER
        self._pause_until_ms = -_NEVER
        self._retry_at_ms = _NEVER
        """When to ask again for what had no clear answer: Persist, CommitSinks."""
        self._stopping = Stopping()
        self._aborted_in_row = 0
        self._failures = FailureRow(options.restart)
        self._last_failure = ""
        self._effects: list[Effect] = []

    def __repr__(self) -> str:
        pending = self._pending
        checkpoint = f"{pending.checkpoint_id} {pending.phase.value}" if pending else "none pending"
        return (
            f"Coordinator({self.phase.value}, attempt {self.attempt}, last completed "
            f"{self.last_completed_id}, {checkpoint})"
        )

    def start(self, now_ms: int) -> list[Effect]:
        """Once, before the first event."""
        self._open(now_ms)
        return self._take_effects()

    @property
    def wake_at_ms(self) -> float:
        """When to call with Tick, if nothing happens before; infinity: never."""
        wake = min(self._deadline_ms, self._stopping.until_ms, self._retry_at_ms)
        if self.phase is JobPhase.RUNNING:
            pending = self._pending
            wake = min(wake, self._trigger_due_ms() if pending is None else pending.deadline_ms)
        return wake

    @property
    def is_waiting_for_time(self) -> bool:
        """What comes next by itself is a trigger or a restart, not the end of somebody's patience."""
        is_between = self.phase is JobPhase.RUNNING and self._pending is None
        return is_between or self.phase is JobPhase.RESTARTING or self._retry_at_ms != _NEVER

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event; what shall be done now, in this order."""
        if self.phase is not JobPhase.OVER:
            self._dispatch(event, now_ms)
            self._check_time(now_ms)
        return self._take_effects()

    def _dispatch(self, event: Event, now_ms: int) -> None:
        match event:
            case ev.SlotAcked() | ev.SlotCommitted() | ev.SlotDeclined():  # first: they come by the thousand
                self._on_slot_answer(event, now_ms)
            case ev.Tick():
                pass
            case ev.StopRequested() | ev.RescaleRequested():
                self._on_request(event, now_ms)
            case ev.AttemptOpened() | ev.OpenFailed() | ev.AlreadyFinished():
                self._on_open_answer(event, now_ms)
            case ev.Persisted() | ev.PersistNotDone() | ev.PersistUnknown() | ev.PersistConflict():
                self._on_persist_answer(event, now_ms)
            case ev.SinksCommitted() | ev.SinksNotCommitted():
                self._on_sink_answer(event, now_ms)
            case _ if event.attempt != self.attempt:
                self._mark("event of a stale attempt")
            case ev.FinishMarked() if self.phase is JobPhase.MARKING:
                self._finish(Outcome.FINISHED, self._stopping.reason)
            case _ if isinstance(event, ev.AttemptEvent):
                self._on_attempt_event(event, now_ms)

    # --- Attempts ----------------------------------------------------------------------------------

    def _open(self, now_ms: int) -> None:
        self.phase = JobPhase.OPENING
        self._deadline_ms = now_ms + self._options.open_timeout_ms
        self._effects += self._scale.begin()
        self._emit(ev.OpenAttempt())

    def _on_open_answer(self, event: ev.OpenAnswer, now_ms: int) -> None:
        if self.phase is not JobPhase.OPENING:
            return
        match event:
            case ev.AlreadyFinished():
                self.last_completed_id = event.checkpoint_id
                self._finish(Outcome.FINISHED, "the job had finished before; nothing is left to do")
            case ev.OpenFailed() if event.is_fenced:
                self._finish(Outcome.FENCED, event.reason)
            case ev.OpenFailed():
                self._fail_attempt(Failure(event.reason, event.is_fatal, event.is_unavailable), now_ms)
            case ev.AttemptOpened():
                assert (
                    self.last_completed_id is None or event.manifest.checkpoint_id >= self.last_completed_id
                )
                assert event.next_checkpoint_id > event.manifest.checkpoint_id
                self.phase = JobPhase.STARTING
                self._deadline_ms = now_ms + self._options.start_timeout_ms
                self.attempt = event.attempt
                self._restored = event.manifest
                self.last_completed_id = event.manifest.checkpoint_id
                self._next_checkpoint_id = event.next_checkpoint_id
                self._drained.clear()
                self._stopping.begin(event.manifest.is_drained)
                self._aborted_in_row = 0
                self._failures.on_attempt(event.attempt)
                self._effects += event.told()
                self._emit(ev.StartSlots(event.attempt, event.manifest))

    def _on_attempt_event(self, event: ev.AttemptEvent, now_ms: int) -> None:
        if self.phase not in (JobPhase.STARTING, JobPhase.RUNNING):
            return  # it has failed already, or has nothing more to lose
        match event:
            case ev.SlotsRunning() if self.phase is JobPhase.STARTING:
                self._on_running(event.attempt, now_ms)
            case ev.SlotsAwaited() if self.phase is JobPhase.STARTING:
                self._deadline_ms = now_ms + self._options.start_timeout_ms
            case ev.SlotsWarmed():
                self._effects += self._scale.on_warmed(event.slots)
            case ev.SlotDrained():
                self._drained.add(event.slot)
            case ev.FirstRecordRead():
                self._failures.on_record()
            case ev.AttemptFailed():
                # Fenced in a slot may also be the late doing of an older attempt's zombie. Whether a
                # newer driver has taken over is for the log to say, when the next attempt is opened.
                is_fatal = event.is_fatal and not event.is_fenced
                failure = Failure(event.reason, is_fatal, event.is_unavailable, event.fingerprints)
                self._fail_attempt(failure, now_ms)

    def _on_running(self, attempt: int, now_ms: int) -> None:
        assert self._restored is not None
        self.phase = JobPhase.RUNNING
        self._deadline_ms = _NEVER
        self._failures.on_running(now_ms)
        # After a pause the next checkpoint comes at once: what is computed until then becomes visible.
        has_paused = self._last_failure or self._scale.has_changed
        pause_ms = self._options.min_pause_ms if has_paused else self._options.interval_ms
        self._trigger_at_ms = now_ms + pause_ms
        # Everything that the restored checkpoint promised is committed now.
        n = self._restored.checkpoint_id
        self._emit(ev.Subsume(attempt, n))
        if self._last_failure:
            self._announce("restarted", attempt=attempt, checkpoint_id=n, reason=self._last_failure)

    def _fail_attempt(self, failure: Failure, now_ms: int) -> None:
        """Cancel the attempt; then restart, or give up. A manifest that is on its way may still become
        durable: the next OpenAttempt reads the log, and the log decides."""
        attempt = None if self.phase is JobPhase.OPENING else self.attempt
        self._cancel(failure.reason)
        if self._stopping.is_requested and not failure.is_fatal:
            self._mark("failure while stopping")
            self._finish(Outcome.CANCELLED, f"without a last checkpoint: {failure.reason}")
            return
        match self._failures.judge(failure, now_ms):
            case GiveUp(reason):
                self._mark("gave up after a failure")
                self._finish(Outcome.FAILED, reason)
            case Restart(delay_ms, failures):
                self.phase = JobPhase.RESTARTING
                self._deadline_ms = now_ms + delay_ms
                self._last_failure = failure.reason
                again: dict[str, Json] = {"restart_in_ms": delay_ms, "failures": failures}
                self._announce("attempt_failed", attempt=attempt, reason=failure.reason, **again)

    def _cancel(self, reason: str) -> None:
        if self.attempt is not None and self.phase in (JobPhase.STARTING, JobPhase.RUNNING):
            self._emit(ev.CancelAttempt(self.attempt, reason))
        self._pending = None
        self._retry_at_ms = _NEVER

    # --- Checkpoints -------------------------------------------------------------------------------

    def _trigger(self, now_ms: int) -> None:
        assert self.attempt is not None
        assert self._pending is None
        is_last = self._stopping.is_ending(self._all_drained)
        pending = PendingCheckpoint(
            self._next_checkpoint_id,
            self.attempt,
            self._scale.slots,
            is_last,
            triggered_ms=now_ms,
            is_final=self._all_drained,
            ends_attempt=self._scale.ends_attempt(now_ms) or is_last,
        )
        pending.enter(Phase.COLLECTING, now_ms, self._options.timeout_ms)
        self._next_checkpoint_id += 1
        self._pending = pending
        self._trigger_at_ms = now_ms + self._options.interval_ms
        self._emit(ev.Trigger(self.attempt, pending.checkpoint_id, pending.ends_attempt))

    def _on_slot_answer(self, event: ev.SlotAnswer, now_ms: int) -> None:
        pending = self._current(event.attempt, event.checkpoint_id)
        match event:
            case ev.SlotAcked():
                if pending is None or pending.phase is not Phase.COLLECTING:
                    self._mark("late ack of an aborted checkpoint")
                    self._discard_late(event)
                elif pending.ack(event.slot, event.snapshot):
                    if self._options.halts:
                        self._emit(ev.Resume(pending.attempt, pending.checkpoint_id))
                    self._persist(pending, now_ms)
            case ev.SlotCommitted() if pending is not None and pending.phase is Phase.COMMITTING:
                if pending.commit(event.slot):
                    self._complete(pending, now_ms)
            case ev.SlotDeclined() if pending is not None and pending.phase is Phase.COLLECTING:
                reason = f"slot {event.slot} declined: {event.reason}"
                self._abort(pending, reason, now_ms, event.is_unavailable)

    def _current(self, attempt: int, checkpoint_id: int) -> PendingCheckpoint | None:
        """The pending checkpoint, if that is what an answer is about; what is stale is ignored."""
        pending = self._pending
        if pending is None or attempt != self.attempt or checkpoint_id != pending.checkpoint_id:
            return None
        return pending

    def _discard_late(self, ack: ev.SlotAcked) -> None:
        paths = ack.snapshot.state_paths()
        if paths and ack.attempt == self.attempt:
            self._emit(ev.Discard(paths))

    def _persist(self, pending: PendingCheckpoint, now_ms: int) -> None:
        """All slots have acked. From here until the answer nobody knows whether it is durable, so it
        can't be aborted any more; a crash leaves it to the log."""
        assert self._restored is not None
        pending.enter(Phase.PERSISTING, now_ms, self._options.persist_timeout_ms)
        pending.manifest = pending.build_manifest(
            self._restored, self._max_parallelism, now_ms, self._wall_offset_ms
        )
        self._emit(ev.Persist(pending.manifest))

    def _on_persist_answer(self, event: ev.PersistAnswer, now_ms: int) -> None:
        pending = self._current(event.attempt, event.checkpoint_id)
        if pending is None or pending.phase is not Phase.PERSISTING:
            self._mark("persist answer of a failed attempt")
            return
        self._retry_at_ms = _NEVER
        match event:
            case ev.Persisted():
                self.last_completed_id = pending.checkpoint_id
                self._failures.on_checkpoint()
                pending.durable_ms = now_ms
                if self._has_committers:
                    self._commit_sinks(pending, now_ms)
                else:
                    self._commit(pending, now_ms)
            case ev.PersistNotDone():
                self._mark("persist not done")
                reason = f"can't write the manifest: {event.reason}"
                self._abort(pending, reason, now_ms, event.is_unavailable)
            case ev.PersistUnknown():
                self._mark("persist unknown")
                self._retry_at_ms = now_ms + self._options.persist_retry_ms
            case ev.PersistConflict():
                self._mark("persist conflict")
                self._cancel("a newer attempt owns the job")
                self._finish(Outcome.FENCED, "another driver has started a newer attempt of this job")

    def _commit_sinks(self, pending: PendingCheckpoint, now_ms: int) -> None:
        """In the driver first: whatever a slot does after its Commit may rest on all output being there."""
        assert pending.manifest is not None
        pending.enter(Phase.COMMITTING_SINKS, now_ms, self._options.commit_timeout_ms)
        self._emit(ev.CommitSinks(pending.manifest))

    def _on_sink_answer(self, event: ev.SinkAnswer, now_ms: int) -> None:
        pending = self._current(event.attempt, event.checkpoint_id)
        if pending is None or pending.phase is not Phase.COMMITTING_SINKS:
            self._mark("sinks' answer of a failed attempt")
        elif isinstance(event, ev.SinksNotCommitted):
            self._mark("sinks not known to be committed")
            pending.hindrance = event.reason
            self._retry_at_ms = now_ms + self._options.persist_retry_ms
        else:
            self._commit(pending, now_ms)

    def _commit(self, pending: PendingCheckpoint, now_ms: int) -> None:
        pending.enter(Phase.COMMITTING, now_ms, self._options.commit_timeout_ms)
        self._emit(ev.Commit(pending.attempt, pending.checkpoint_id))

    def _complete(self, pending: PendingCheckpoint, now_ms: int) -> None:
        """A checkpoint is durable and committed everywhere."""
        self._pending = None
        self._aborted_in_row = 0
        self._pause_until_ms = now_ms + self._options.min_pause_ms
        self._emit(ev.Subsume(pending.attempt, pending.checkpoint_id))
        self._announce("checkpoint_completed", **pending.outcome(now_ms))
        if pending.is_final:
            self.phase = JobPhase.MARKING
            self._deadline_ms = now_ms + self._options.persist_timeout_ms
            self._emit(ev.MarkFinished(pending.attempt))
        elif pending.is_last:
            self._finish(Outcome.STOPPED, "on request, after a last checkpoint")
        elif pending.ends_attempt:
            self._cancel("the job is rescaled")
            self._last_failure = ""
            self._open(now_ms)

    def _abort(
        self, pending: PendingCheckpoint, reason: str, now_ms: int, is_unavailable: bool = False
    ) -> None:
        """Nothing of it is durable as a checkpoint, and nothing will be. Its output stays with the
        writers and is part of the next one."""
        assert pending.phase in (Phase.COLLECTING, Phase.PERSISTING), "a durable checkpoint can't be aborted"
        self._pending = None
        self._pause_until_ms = now_ms + self._options.min_pause_ms
        self._emit(ev.AbortCheckpoint(pending.attempt, pending.checkpoint_id, reason))
        if paths := pending.state_paths():
            self._emit(ev.Discard(paths))
        self._announce("checkpoint_failed", checkpoint_id=pending.checkpoint_id, reason=reason)
        self._aborted_in_row += 1
        if self._aborted_in_row > self._options.tolerable_failures:
            self._mark("too many aborted checkpoints")
            reason = f"{self._aborted_in_row} checkpoints in a row failed: {reason}"
            self._fail_attempt(Failure(reason, is_unavailable=is_unavailable), now_ms)

    # --- Time, stop, end ---------------------------------------------------------------------------

    def _check_time(self, now_ms: int) -> None:
        """Every limit of `wake_at_ms`, one after another."""
        if now_ms >= self._stopping.until_ms and self.phase is not JobPhase.OVER:
            self._mark("stop timeout")
            self._cancel("stop timeout")
            self._finish(Outcome.CANCELLED, self._stopping.overdue())
        if now_ms >= self._deadline_ms:
            self._on_deadline(now_ms)
        if self.phase is not JobPhase.RUNNING:
            return
        pending = self._pending
        if pending is not None:
            self._check_pending(pending, now_ms)
        if self.phase is not JobPhase.RUNNING or self._pending is not None:
            return
        if self._stopping.take_drain():
            assert self.attempt is not None
            self._emit(ev.Drain(self.attempt))
        if now_ms >= self._trigger_due_ms() and self._stopping.forbids_trigger(self._all_drained):
            self._trigger_at_ms = now_ms + self._options.interval_ms
        elif now_ms >= self._trigger_due_ms():
            self._trigger(now_ms)

    def _trigger_due_ms(self) -> float:
        """A job that is ending waits for no interval."""
        is_ending = self._stopping.is_ending(self._all_drained)
        due_ms = self._pause_until_ms if is_ending else min(self._trigger_at_ms, self._scale.last_due_ms)
        return max(due_ms, self._pause_until_ms)

    @property
    def _all_drained(self) -> bool:
        return len(self._drained) == self._scale.slots

    def _on_deadline(self, now_ms: int) -> None:
        """The job was too long in its phase."""
        self._deadline_ms = _NEVER
        options = self._options
        match self.phase:
            case JobPhase.OPENING:
                self._finish(Outcome.FAILED, options.open_overdue)
            case JobPhase.STARTING:
                self._fail_attempt(Failure(options.start_overdue), now_ms)
            case JobPhase.RESTARTING:
                self._open(now_ms)
            case JobPhase.MARKING:
                self._finish(Outcome.FINISHED, self._stopping.reason)
            case JobPhase.RUNNING | JobPhase.OVER:
                raise AssertionError(f"{self.phase} has no deadline")

    def _check_pending(self, pending: PendingCheckpoint, now_ms: int) -> None:
        if now_ms >= pending.deadline_ms:
            self._mark(f"{pending.phase.value} timeout")
            reason = pending.overdue(now_ms)
            if pending.phase is Phase.COLLECTING:
                self._abort(pending, reason, now_ms)
            else:
                self._fail_attempt(Failure(reason), now_ms)
        elif now_ms >= self._retry_at_ms:
            self._retry_at_ms = _NEVER
            assert pending.manifest is not None
            is_durable = pending.phase is not Phase.PERSISTING
            self._emit(ev.CommitSinks(pending.manifest) if is_durable else ev.Persist(pending.manifest))

    def _on_request(self, event: ev.StopRequested | ev.RescaleRequested, now_ms: int) -> None:
        if isinstance(event, ev.RescaleRequested):
            running = self.attempt if self.phase is JobPhase.RUNNING else None
            self._effects += self._scale.request(event.slots, running, now_ms)
            return
        if self._stopping.is_requested:
            return
        options = self._options
        patience_ms = options.timeout_ms if event.drains else options.stop_timeout_ms
        self._stopping.request(event.drains, patience_ms, now_ms)
        is_hosted = self.phase is not JobPhase.STARTING or event.has_slots
        if self.phase in (JobPhase.OPENING, JobPhase.RESTARTING) or not is_hosted:
            self._mark("stop while no attempt runs")
            has_read = self.attempt is not None and (is_hosted or self._last_failure != "")
            self._cancel("a stop was requested")
            self._finish(*self._stopping.without_an_attempt(has_read))

    def _finish(self, outcome: Outcome, reason: str) -> None:
        self.phase = JobPhase.OVER
        self._pending = None
        self._deadline_ms = self._stopping.until_ms = self._retry_at_ms = _NEVER
        self._announce(
            "job_finished", outcome=outcome.value, reason=reason, checkpoint_id=self.last_completed_id
        )
        self._emit(ev.FinishJob(outcome, reason, self.last_completed_id))

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _announce(self, event: str, **fields: Json) -> None:
        self._emit(ev.Announce(event, fields))

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
