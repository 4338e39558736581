"""JobDriver: one run of a job, from the first attempt to the end.

One thread, one queue: what slots say, what the store answers, signals and timers become the
coordinator's events, and the driver carries out the effects that come back. It decides nothing itself;
what is decided is in checkpoint/coordinator.py, what is durable in the checkpoint folder. A crash of
this process loses nothing but time: the same command goes on from the log.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.coordinator import Coordinator
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.io_thread import CheckpointIOThread
from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.staged_files import PromisedStagedFiles
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import SplitProgress
from onceflow.runtime.control.commands import command_of
from onceflow.runtime.control.heartbeat import heartbeat_ms
from onceflow.runtime.control.live_messages import AskState, RowsOfKeys
from onceflow.runtime.control.messages import (
    Acked,
    AddSplits,
    Alive,
    AskCancel,
    AskRescale,
    AskStatus,
    AskStop,
    Committed,
    Failed,
    Healed,
    Status,
    ToDriver,
)
from onceflow.runtime.control.server import ControlServer
from onceflow.runtime.driver.away_notice import AwayNotice
from onceflow.runtime.driver.committers import Committers
from onceflow.runtime.driver.encryption import new_credentials
from onceflow.runtime.driver.enumerators import Enumerators
from onceflow.runtime.driver.folder_io import checkpoint_io
from onceflow.runtime.driver.live_questions import LiveQuestions
from onceflow.runtime.driver.options import Guarantee, RunOptions, check_slots
from onceflow.runtime.driver.progress import ProgressMeter, shown_phase
from onceflow.runtime.driver.result import JobResult
from onceflow.runtime.driver.slot_closing import SlotClosing
from onceflow.runtime.driver.slot_launches import SlotLaunches
from onceflow.runtime.driver.start_watch import StartWatch
from onceflow.runtime.environment.running_jobs import RunningJob
from onceflow.runtime.errors import Fatal, OnceflowError, OptionError, UsageError
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.hosts.launch import SlotLauncher
from onceflow.runtime.report import JobProgress, Reporter
from onceflow.runtime.slot.assignments import assignments
from onceflow.runtime.slot.group import SlotGroup

_BY_THE_THOUSAND = (Acked, Committed)
"""What every slot says of every checkpoint: it takes a short way."""


class JobDriver:
    """Make it, then `run` once. `request_stop` and `request_cancel` may be called from signal handlers."""

    def __init__(
        self, graph: JobGraph, options: RunOptions, launcher: SlotLauncher, clock: Clock, reporter: Reporter
    ) -> None:
        self._graph = graph
        self._options = options
        self._launcher = launcher
        self._clock = clock
        self._reporter = reporter
        self._closing = SlotClosing()
        self._parallelism = options.parallelism or min(launcher.slots_max, graph.max_parallelism)
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._meter = ProgressMeter(graph)
        self._latest_progress = JobProgress(graph.job, "opening")
        self._slots: SlotGroup | None = None
        self._end_discovery: Callable[[], None] = lambda: None
        self._running: RunningJob | None = None
        self._stoppers: list[int] = []  # peers that are told how the job ends
        self._result: JobResult | None = None
        self._detail = self._cause = ""
        away = AwayNotice(lambda why: self._inbox.put(lambda: self._announce("warning", {"reason": why})))
        self._store = open_store(options.checkpoint_dir, options.storage_options, away)
        self._committers = Committers(graph, clock, PromisedStagedFiles(self._store, self._say_healed))
        offset_ms, commits = round(clock.now_ms() - clock.monotonic_ms()), bool(self._committers)
        slots, groups = self._parallelism, graph.max_parallelism
        self._coordinator = Coordinator(
            slots, groups, options.checkpoints, wall_offset_ms=offset_ms, has_committers=commits
        )

    def run(self, control_host: str = "127.0.0.1", listen_host: str | None = None) -> JobResult:
        """Run the job until it ends. See SlotLauncher for the two addresses of this machine."""
        self._enumerators = Enumerators(self._graph, self._clock)
        self._start_watch = StartWatch(self._enumerators, self._launcher, self._parallelism, self._now_ms())
        self._credentials = new_credentials(self._options.tls, self._launcher, self._reporter)
        listen_at = (listen_host or control_host, self._options.control_port)
        self._server = ControlServer(
            self._credentials, control_host, self._on_messages, self._on_lost, listen_at
        )
        to_slots = (self._graph, self._options, self._launcher, self._server, self._credentials)
        self._launches = SlotLaunches(*to_slots, self._clock.monotonic_ms, self._handle_later)
        self._questions = LiveQuestions(self._graph, self._server.send)
        doors, slots = (self._enumerators, self._committers), self._parallelism
        io = checkpoint_io(self._graph, self._options, self._store, self._clock, doors, slots)
        self._checkpoint_io = io
        self._io = CheckpointIOThread(io, lambda event: self._inbox.put(lambda: self._handle(event)))
        try:
            self._carry_out(self._coordinator.start(self._now_ms()))
            self._loop()
        finally:
            if self._running is not None:
                self._running.withdraw()
            self._end_attempt("the job has ended")
            self._launches.close()
            if self._running is None:  # nobody wants the answer to what a source is still asked
                self._enumerators.close()
            self._io.close()
            if self._result is not None:
                self._server.broadcast(self._stoppers, self._result.told())
            self._server.close()
            if self._running is not None:
                self._enumerators.close()
            self._committers.close()
        assert self._result is not None
        return replace(self._result, is_refused=io.is_refused)

    def request_stop(self, drains: bool = False) -> None:
        """A last checkpoint, then the end. `drains`: the sources end before, as if their input had."""
        self._inbox.put(lambda: self._stop(drains))

    def request_cancel(self, reason: str = "cancelled") -> None:
        """The end at once, without a checkpoint."""
        self._inbox.put(lambda: self._cancel(reason))

    def _rescale(self, slots: int) -> Mapping[str, object]:
        """The status; with what is in the way of so many slots, if something is."""
        try:
            check_slots(slots, self._graph.max_parallelism)
            self._launcher.check_room(slots)
            self._handle(ev.RescaleRequested(slots))
        except OptionError as error:
            return {**self._status(), "refused": str(error)}
        return self._status()

    def _stop(self, drains: bool) -> None:
        if self._result is None:
            self._announce("stop_requested", {"drains": drains})
            self._handle(ev.StopRequested(bool(self._slots and self._slots.slots), drains))

    def _cancel(self, reason: str) -> None:
        if self._result is None:
            last, outcome = self._coordinator.last_completed_id, Outcome.CANCELLED.value
            self._announce("job_finished", {"outcome": outcome, "reason": reason, "checkpoint_id": last})
            self._finish(JobResult(Outcome.CANCELLED, reason, last, self._meter.late_records))

    # --- The loop -----------------------------------------------------------------------------------

    def _loop(self) -> None:
        pause_ms = heartbeat_ms(self._parallelism)
        report_at_ms = self._clock.monotonic_ms()  # at once, to say what is waited for
        while self._result is None:
            wake_at_ms = min(self._coordinator.wake_at_ms, report_at_ms)
            wait_s = max(0.0, wake_at_ms - self._clock.monotonic_ms()) / 1000
            try:
                self._inbox.get(timeout=wait_s)()
            except queue.Empty:
                self._handle(ev.Tick())
            if self._result is None and self._clock.monotonic_ms() >= report_at_ms:
                report_at_ms = self._clock.monotonic_ms() + pause_ms
                self._report()

    def _handle(self, event: ev.Event) -> None:
        if isinstance(event, ev.OpenFailed | ev.AttemptFailed):
            self._cause = event.kind
        self._handle_at(event, self._clock.monotonic_ms())

    def _handle_at(self, event: ev.Event, now_ms: float) -> None:
        if self._result is None:
            effects = self._coordinator.handle(event, round(now_ms))
            if effects:
                self._carry_out(effects)

    def _carry_out(self, effects: Sequence[ev.Effect]) -> None:
        for effect in effects:
            match effect:
                case ev.StartSlots(attempt, manifest):
                    self._start_slots(attempt, manifest)
                case ev.Rescale(slots):
                    self._parallelism = self._start_watch.parallelism = slots
                    self._io.submit(effect)
                case ev.WarmSlots(attempt, slots):
                    self._handle_later(partial(self._launches.warm, attempt, self._parallelism, slots))
                case ev.CancelAttempt(_, reason):
                    self._end_attempt(reason)
                case ev.FinishJob(outcome, reason, last_id):
                    late = self._meter.late_records
                    self._finish(JobResult(outcome, reason, last_id, late, self._detail, self._cause))
                case ev.Announce(name, fields):
                    self._announce(name, fields)
                case ev.Trigger() | ev.Resume() | ev.Drain() | ev.Commit() | ev.AbortCheckpoint():
                    self._running_slots.broadcast(command_of(effect))
                case _:
                    self._io.submit(effect)

    @property
    def _running_slots(self) -> SlotGroup:
        assert self._slots is not None, "the coordinator speaks to slots that it has started"
        return self._slots

    def _finish(self, result: JobResult) -> None:
        self._result = self._result or result

    # --- Attempts -----------------------------------------------------------------------------------

    def _start_slots(self, attempt: int, manifest: CheckpointManifest) -> None:
        self._cause = ""
        if self._running is None:  # not before the log is ours: the folder may be another driver's
            folder = self._options.checkpoint_dir
            self._running = RunningJob.announce(folder, self._server.address, self._credentials)
            for warning in self._enumerators.warnings(manifest.splits):
                self._announce("warning", {"reason": warning})
        try:
            splits = manifest.splits
            if self._options.guarantee is Guarantee.AT_MOST_ONCE and manifest.checkpoint_id > 0:
                splits = self._enumerators.skip_to_end(splits)
            self._enumerators.restore(manifest)
            entry, slots = self._checkpoint_io.attempt_entry, self._parallelism
            restored = assignments(attempt, replace(manifest, splits=splits), slots, entry)
            self._slots = group = self._launches.begin(attempt, slots, restored)
        except OnceflowError as error:
            is_fatal = isinstance(error, Fatal | UsageError)
            self._handle(ev.AttemptFailed(attempt, str(error), is_fatal, kind=type(error).__name__))
            return
        if group.slots:  # they were warm
            self._say_started(group)
        self._end_discovery = self._enumerators.start_discovery(
            lambda uid, found: self._inbox.put(lambda: self._add_splits(group, uid, found))
        )

    def _add_splits(self, group: SlotGroup, uid: str, splits: Sequence[SplitProgress]) -> None:
        """New splits were found: each to the slot that has the fewest, counted from slot 0."""
        is_running = self._coordinator.phase is JobPhase.RUNNING
        is_wanted = is_running and not group.is_over and bool(group.slots)
        new = self._enumerators.take_new(uid, splits, is_wanted)
        for number, progress in new:
            group.send(number % self._parallelism, AddSplits(uid=uid, splits=[progress]))
        if new:
            self._announce("splits_discovered", {"uid": uid, "splits": [p.split.split_id for _, p in new]})

    def _end_attempt(self, reason: str) -> None:
        self._end_discovery()
        if self._slots is not None and not self._slots.is_over:
            self._slots.end(reason)
            self._closing.wait(lambda reason: self._announce("warning", {"reason": reason}))
            self._launches.cancel()

    # --- What comes in ------------------------------------------------------------------------------

    def _on_messages(self, messages: Sequence[tuple[int, ToDriver]]) -> None:
        """Called on the control server's thread. One turn for all: a turn for each would hand the
        interpreter's lock over for each."""
        rest = self._closing.hear(messages)
        self._inbox.put(lambda: self._take_messages(rest))

    def _say_healed(self, problem: str) -> None:
        """On the thread of the checkpoint folder's I/O: a committer read a staged file from its copy."""
        self._inbox.put(lambda: self._announce("damage_healed", {"message": problem}))

    def _on_lost(self, peer: int) -> None:
        self._closing.on_lost(peer)
        self._inbox.put(lambda: self._handle_all(self._launches.on_lost(peer)))

    def _take_messages(self, messages: Sequence[tuple[int, ToDriver]]) -> None:
        heard_ms = self._clock.monotonic_ms()  # one reading for all that take the short way in a row
        for peer, message in messages:
            group = self._slots
            if isinstance(message, _BY_THE_THOUSAND) and group is not None:
                for event in group.on_message(peer, message, heard_ms):
                    self._handle_at(event, heard_ms)
            else:
                self._take_message(peer, message)
                heard_ms = self._clock.monotonic_ms()  # the coordinator's time never goes back

    def _take_message(self, peer: int, message: ToDriver) -> None:
        match message:
            case AskStatus():
                self._server.send(peer, Status(status=self._status()))
            case AskStop(drains=drains):
                self._stoppers.append(peer)
                self._stop(drains)
                self._server.send(peer, Status(status=self._status()))
            case AskRescale(slots=slots):
                self._server.send(peer, Status(status=self._rescale(slots)))
            case AskState():
                self._questions.ask(peer, message, self._slots, self._shown_phase, self._now_ms())
            case RowsOfKeys():
                self._questions.on_rows(message, self._coordinator.last_completed_id)
            case AskCancel():
                self._server.send(peer, Status(status=self._status()))
                self.request_cancel("cancelled on request")
            case _ if self._launches.is_of_next(message):
                self._handle_all(self._launches.on_message(peer, message))
            case _ if self._slots is not None:
                if isinstance(message, Failed):
                    self._detail = message.detail
                self._take_slot_message(self._slots, peer, message)

    def _take_slot_message(self, group: SlotGroup, peer: int, message: ToDriver) -> None:
        had_slots, had_first, attempt = bool(group.slots), group.first_record_ms is not None, group.attempt
        self._handle_all(group.on_message(peer, message, self._clock.monotonic_ms()))
        if group.slots and not had_slots:
            self._say_started(group)
        if (first_ms := group.first_record_ms) is not None and not had_first:
            self._announce("first_record", {"attempt": attempt, "first_record_ms": first_ms})
        if isinstance(message, Healed):
            self._announce("damage_healed", {"message": message.problem})

    def _say_started(self, group: SlotGroup) -> None:
        self._announce("slots_started", {"attempt": group.attempt, "slots": group.describe()})

    def _handle_later(self, events: Callable[[], Sequence[ev.Event]]) -> None:
        self._inbox.put(lambda: self._handle_all(events()))

    def _handle_all(self, events: Sequence[ev.Event]) -> None:
        for event in events:
            self._handle(event)

    # --- What goes out ------------------------------------------------------------------------------

    def _announce(self, name: str, fields: Mapping[str, object]) -> None:
        if name == "job_finished":
            self._end_attempt("the job has ended")  # its functions are closed before
            self._report()
            fields = {**fields, "late_records": self._meter.late_records, "restarts": self._meter.restarts}
        self._meter.on_event(name, fields)
        self._reporter.event(name, fields)

    def _report(self) -> None:
        group = self._slots
        self._questions.look(group, self._now_ms())
        if group is not None:
            group.broadcast(Alive())
            self._handle_all(group.check_alive(self._clock.monotonic_ms()))
        slots = [slot.progress for slot in group.slots] if group is not None else []
        late_before, now_ms = self._latest_progress.late_records, self._clock.monotonic_ms()
        measured = self._meter.measure(self._shown_phase, slots, now_ms)
        waiting = (*self._start_watch.waiting(self._coordinator.phase, group, now_ms), *measured.waiting)
        self._latest_progress = replace(measured, waiting=waiting, rss_bytes=group.rss_bytes if group else 0)
        if self._latest_progress.late_records > late_before:
            self._reporter.event("late_records", {"late_records": self._latest_progress.late_records})
        self._reporter.progress(self._latest_progress)

    @property
    def _shown_phase(self) -> str:
        has_records = self._slots is not None and self._slots.first_record_ms is not None
        return shown_phase(self._coordinator.phase, has_records)

    def _status(self) -> Mapping[str, object]:
        return {
            **msgspec.to_builtins(self._latest_progress),
            "phase": self._shown_phase,
            "slots": self._slots.describe_usage() if self._slots else [],
            "parallelism": self._parallelism,
            "last_checkpoint_id": self._coordinator.last_completed_id,
        }

    def _now_ms(self) -> int:
        return round(self._clock.monotonic_ms())
