"""Carries out the coordinator's effects on the store and turns their outcomes into events.

`CheckpointIO.execute` does one effect and returns its answer; `io_thread.py` does so on a thread, in order.
Nothing here decides: an outcome that can't be told becomes PersistUnknown, not a guess.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.chosen_start import ChosenStart, chosen_start, told
from onceflow.runtime.checkpoint.create_proof import prove_create
from onceflow.runtime.checkpoint.doors import SinkDoor, SplitDoor, discovered, with_new
from onceflow.runtime.checkpoint.events import Event
from onceflow.runtime.checkpoint.fingerprints import is_unavailable
from onceflow.runtime.checkpoint.first_checkpoint import copy_of, initial_checkpoint
from onceflow.runtime.checkpoint.log import (
    CheckpointCompleted,
    CheckpointLog,
    JobCreated,
    JobFinished,
    LogMoved,
    encode_entry,
    entry_path,
)
from onceflow.runtime.checkpoint.log_notices import LogNotices
from onceflow.runtime.checkpoint.log_view import LogView, read_log
from onceflow.runtime.checkpoint.manifest import AttemptEntry, CheckpointManifest
from onceflow.runtime.checkpoint.old_states import restorable
from onceflow.runtime.checkpoint.recovery import Finished, NeverStarted, Resumable
from onceflow.runtime.checkpoint.retention import Retention, mend_copies
from onceflow.runtime.checkpoint.savepoints.starting import Begins, Origin, judge_start
from onceflow.runtime.checkpoint.state_fits import Fit, Program, check_job
from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore, DistantStore
from onceflow.runtime.checkpoint.verification import check_state_is_there
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Json
from onceflow.runtime.contracts.going_back import GoingBack
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.errors import (
    Fatal,
    Fenced,
    Indeterminate,
    OnceflowError,
    Retryable,
    UsageError,
)

IoEffect = ev.StoreEffect
_TAKE_OVER_TRIES = 20


class CheckpointIO:
    """One driver's hands on the checkpoint folder. One thread calls it."""

    def __init__(
        self,
        store: CheckpointStore,
        clock: Clock,
        splits: SplitDoor,
        sinks: SinkDoor,
        program: Program,
        parallelism: int,
        retained: int = 3,
    ) -> None:
        self._store = store
        self._clock = clock
        self._splits = splits
        self._sinks = sinks
        self._program = program
        self._parallelism = parallelism
        self._retained = retained
        self._owner = uuid.uuid4().hex
        self._log: CheckpointLog | None = None
        self._has_attempt = False
        """Whether this driver has begun an attempt: before, it takes over whatever it finds; after, it may be
        fenced."""
        self._retention: Retention | None = None
        self._finished: Mapping[str, Json] = {}
        """What the latest durable checkpoint says of finished splits."""
        self._notices = LogNotices(store.describe())
        self.from_checkpoint_id: int | None = None  # the user's choice for this run; None: the latest
        self.going_back = GoingBack()  # what an older one means for the job's output
        self.origin: Origin | None = None  # the savepoint with which the user wants the job to begin
        self.attempt_entry: AttemptEntry | None = None
        """The entry of the log that began the latest attempt: what a slot looks for in its own folder."""
        self._is_proven = False
        """Whether the store's create is known to be conditional."""
        self.is_refused = False  # the folder does not fit the program: wrong use, no failure of the job

    def execute(self, effect: IoEffect) -> Event | None:
        """Do it; its answer, if the effect has one. Raises nothing that belongs into an answer."""
        match effect:
            case ev.OpenAttempt():
                return self._open()
            case ev.Rescale(slots):
                self._parallelism = slots
            case ev.Persist(manifest):
                return self._persist(manifest)
            case ev.CommitSinks(manifest):
                return self._commit_sinks(manifest)
            case ev.MarkFinished(attempt):
                return self._mark_finished(attempt)
            case ev.Subsume(_, checkpoint_id):
                assert self._retention is not None
                self._quietly(lambda retention: retention.subsume(checkpoint_id))
            case ev.Discard(paths):
                self._quietly(lambda retention: retention.discard(paths))
        return None

    # --- Opening an attempt -------------------------------------------------------------------------

    def _open(self) -> Event:
        reason = ""
        try:
            if not self._is_proven and isinstance(self._store, DistantStore):
                prove_create(self._store)
            self._is_proven = True
            for _ in range(_TAKE_OVER_TRIES):
                try:
                    return self._try_open()
                except LogMoved as error:
                    reason = str(error)
            return ev.OpenFailed(f"can't append to the log in {self._store.describe()}: {reason}")
        except Fenced as error:
            return ev.OpenFailed(str(error), is_fenced=True)
        except (Fatal, UsageError) as error:
            self.is_refused = isinstance(error, UsageError)
            return ev.OpenFailed(str(error), is_fatal=True, kind=type(error).__name__)
        except (OnceflowError, OSError) as error:
            kind = type(error).__name__
            return ev.OpenFailed(str(error), is_unavailable=is_unavailable(error), kind=kind)

    def _try_open(self) -> Event:
        # 1. Read what is durable. A driver that was fenced while it did not look finds out here.
        view = read_log(self._store)
        if self._has_attempt:
            self._check_not_overtaken(view)
        start, begins = self._derive(view)
        job = start.created
        if isinstance(job, Finished):
            check_job(job.latest, self._program)
            return ev.AlreadyFinished(job.latest.checkpoint_id)
        restored: Fit | None = None
        if job.latest is not None:
            restored = restorable(self._store, job.latest, self._program)
            check_state_is_there(self._store, job.latest, [m for _, m in view.completed()])
            self._splits.check_restored(restored.manifest.splits)
        self._put_back(view)
        # 2. Take the next position. From here on every earlier driver's next append conflicts.
        position = self._take_over(start, job.next_position)
        mend_copies(self._store, view)
        # 3. At the very first start, fix where the sources begin. A crash before this line: the next
        #    attempt asks the sources again; nothing was read. Or fix that it goes back; before, it has not.
        self._retention = Retention(self._store, self._retained, view, position)
        if start.goes_back is not None:
            restored = self._write_copy(start.goes_back, job, restored)
        latest = restored.manifest if restored else self._write_initial(job, begins)
        fit = restored or (begins and begins.fit)
        # 4. What the restored checkpoint promised, for all writers of a sink together. Older attempts are
        #    fenced by now. A crash: the next attempt does it again, and asks first what is there.
        latest = self._sinks.restore(job.next_attempt, latest)
        self._finished = latest.finished
        self._retention.sweep(job.next_attempt, self._clock.now_ms())
        self.from_checkpoint_id = None
        # 5. What appeared while the job was down begins with the rest; nothing of it is durable yet.
        found = self._splits.found_since(latest) if fit else {}
        latest = replace(latest, splits={**latest.splits, **with_new(latest, found)})
        next_id = max(job.next_checkpoint_id, latest.checkpoint_id + 1)
        said = [] if begins is None else begins.told()
        said += told(start, self.going_back)
        notices = [*said, *self._notices.of(view), *map(discovered, found, found.values())]
        return ev.AttemptOpened(job.next_attempt, latest, next_id, fit.notes if fit else (), notices)

    def _take_over(self, start: ChosenStart, position: int) -> int:
        """Begin an attempt at this position of the log. Raises LogMoved, Fenced."""
        if self._log is None or self._log.next_position != position:
            self._log = CheckpointLog(self._store, position)
        started = start.entry(self._owner, self._clock.now_ms(), self._parallelism)
        try:
            position = self._log.append(started)
        except Fenced:
            if self._has_attempt:
                raise
            self._log = None
            raise LogMoved("another driver was faster") from None
        self._has_attempt = True
        self.attempt_entry = AttemptEntry(entry_path(position), encode_entry(position, started))
        return position

    def _derive(self, view: LogView) -> tuple[ChosenStart, Begins | None]:
        """What the log says, and what the job begins with, if that is a savepoint. Raises LogMoved if the
        job had to be created first."""
        start = chosen_start(view, self.from_checkpoint_id, self.going_back)
        begins = judge_start(self._store, view, self.origin, self._program)
        if begins is not None:
            self._splits.check_restored(begins.fit.manifest.splits)
            begins = begins.with_splits(self._splits.bounded(begins.fit.manifest))
            begins = begins.with_splits(self._splits.splits_from(begins.changes.starts))
        if isinstance(start.job, NeverStarted):
            self._create_job(begins)
            raise LogMoved("the job was created")
        return start, begins

    def _check_not_overtaken(self, view: LogView) -> None:
        """This driver had the log: what is beyond its own last entry is another driver's, except a
        manifest of its own whose fate it did not know."""
        assert self._log is not None
        for position, entry in view.entries.items():
            if position >= self._log.next_position and not self._log.was_in_doubt(position, entry):
                raise Fenced(f"another driver has started a newer attempt of job {self._program.job!r}")

    def _create_job(self, begins: Begins | None) -> None:
        # Fenced: somebody else created it; Indeterminate: perhaps we did. The next read tells.
        with contextlib.suppress(Fenced, Indeterminate):
            created = JobCreated(self._program.job, uuid.uuid4().hex[:16], self._clock.now_ms())
            CheckpointLog(self._store, 0).append(created if begins is None else begins.noted(created))

    def _write_initial(self, job: Resumable, begins: Begins | None) -> CheckpointManifest:
        """Checkpoint 0: the sources' configured start, or what a savepoint holds."""
        saved = None if begins is None else begins.copy_into(self._store, job.next_attempt)
        splits = self._splits.initial_splits() if saved is None else saved.splits
        now_ms = self._clock.now_ms()
        manifest = initial_checkpoint(job, self._program, self._parallelism, splits, saved, now_ms)
        self._write_first(manifest)
        return manifest

    def _write_copy(self, back: WentBack, job: Resumable, restored: Fit | None) -> Fit:
        """The checkpoint with which the job goes back, and what of it fits the program."""
        assert job.latest is not None, "one goes back to a checkpoint"
        assert restored is not None, "it fits"
        copied = partial(copy_of, back=back, attempt=job.next_attempt, now_ms=self._clock.now_ms())
        self._write_first(copied(job.latest))
        return replace(restored, manifest=copied(restored.manifest))

    def _write_first(self, manifest: CheckpointManifest) -> None:
        assert self._log is not None
        assert self._retention is not None
        self._retention.add(self._log.append(CheckpointCompleted(manifest)), manifest)

    def _put_back(self, view: LogView) -> None:
        """Entries that are gone, from their copies: else their positions were free for a zombie."""
        for position in sorted(view.gone):
            try:
                self._store.create(entry_path(position), encode_entry(position, view.entries[position]))
            except AlreadyExists:
                raise LogMoved(f"entry {position} is there again") from None

    # --- While it runs ------------------------------------------------------------------------------

    def _persist(self, manifest: CheckpointManifest) -> Event:
        assert self._log is not None
        assert self._retention is not None
        attempt, n = manifest.attempt, manifest.checkpoint_id
        pruned = self._splits.prune(manifest, self._finished)
        pruned = replace(pruned, operators=self._program.described_in(manifest))
        try:
            position = self._log.append(CheckpointCompleted(pruned))
        except Fenced:
            return ev.PersistConflict(attempt, n)
        except Retryable as error:
            return ev.PersistNotDone(attempt, n, str(error), is_unavailable(error))
        except (Indeterminate, OSError) as error:
            return ev.PersistUnknown(attempt, n, str(error))
        self._finished = pruned.finished
        self._splits.on_pruned(manifest, pruned.finished)
        self._retention.add(position, pruned)
        return ev.Persisted(attempt, n)

    def _commit_sinks(self, manifest: CheckpointManifest) -> Event:
        attempt, n = manifest.attempt, manifest.checkpoint_id
        try:
            self._sinks.commit(manifest)
        except Fenced as error:
            return ev.AttemptFailed(attempt, str(error), is_fenced=True)
        except (Fatal, UsageError) as error:
            return ev.AttemptFailed(attempt, str(error), is_fatal=True, kind=type(error).__name__)
        except (OnceflowError, OSError) as error:
            return ev.SinksNotCommitted(attempt, n, str(error))
        return ev.SinksCommitted(attempt, n)

    def _mark_finished(self, attempt: int) -> Event:
        assert self._log is not None
        # If it fails, the next run restores the last checkpoint, finds no input left, and marks it then.
        with contextlib.suppress(OnceflowError, OSError):
            self._log.append(JobFinished(attempt, self._clock.now_ms()))
        return ev.FinishMarked(attempt)

    def _quietly(self, clean: Callable[[Retention], None]) -> None:
        """Files that can't be deleted now are found at the next start."""
        assert self._retention is not None
        with contextlib.suppress(OSError):
            clean(self._retention)
