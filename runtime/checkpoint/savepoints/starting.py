"""What a job begins with that is started from a savepoint: judged before its folder is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from msgspec import structs

from onceflow.runtime.checkpoint.events import Announce
from onceflow.runtime.checkpoint.log import JobCreated
from onceflow.runtime.checkpoint.log_view import LogView
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle
from onceflow.runtime.checkpoint.old_states import restorable
from onceflow.runtime.checkpoint.savepoints.adapting import adapted
from onceflow.runtime.checkpoint.savepoints.copying import copy_state
from onceflow.runtime.checkpoint.savepoints.folder import SavepointFolder
from onceflow.runtime.checkpoint.savepoints.regrouping import Regrouping
from onceflow.runtime.checkpoint.savepoints.start_notice import StartNotice, start_notice
from onceflow.runtime.checkpoint.start_changes import StartChanges
from onceflow.runtime.checkpoint.state_comparison import StateNote
from onceflow.runtime.checkpoint.state_fits import Fit, Program
from onceflow.runtime.checkpoint.state_paths import STATE_FOLDER, attempt_folder
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.contracts import SplitProgress
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import StateDescription


@dataclass(frozen=True, slots=True)
class Origin:
    """What the user wants a job to begin with."""

    folder: SavepointFolder
    changes: StartChanges = StartChanges()  # noqa: RUF009 - it is frozen
    other_keys: Mapping[str, OtherKeys] = field(default_factory=dict)
    """The operators, by uid, whose state gets other keys."""


class OtherState(Protocol):
    """What an operator is to keep in place of what a savepoint has of it."""

    @property
    def described(self) -> StateDescription: ...

    def written(
        self, store: CheckpointStore, manifest: CheckpointManifest, attempt: int, checkpoint_id: int
    ) -> list[StateHandle]:
        """Its files, of this attempt and checkpoint, in place of what this manifest has of the operator."""
        ...


class OtherKeys(Protocol):
    """Makes the state of an operator belong to other keys."""

    def state_of(self, store: CheckpointStore, manifest: CheckpointManifest, uid: str) -> OtherState:
        """Raises UsageError if it can't."""
        ...


@dataclass(frozen=True, slots=True)
class Begins:
    """The part of a savepoint that a program is restored with. Sources that begin elsewhere have no splits in
    it."""

    savepoint_id: str
    fit: Fit
    source: CheckpointStore
    changes: StartChanges
    notice: StartNotice
    others: Mapping[str, OtherState] = field(default_factory=dict)
    """What is to be written in place of what the savepoint has, by uid."""
    regrouping: Regrouping = Regrouping(1, 1)  # noqa: RUF009 - it is frozen
    """The key groups of the savepoint, which its manifest has, and those of the program."""
    healed: list[str] = field(default_factory=list)
    """What is to be said of files that were read from their copies."""

    def copy_into(self, store: CheckpointStore, attempt: int) -> CheckpointManifest:
        """What checkpoint 0 of `store` is to hold, with its files there. They are this attempt's: what a
        crash leaves is deleted by the next one, which copies again."""
        folder = f"{attempt_folder(STATE_FOLDER, attempt)}/savepoint"
        manifest = self.fit.manifest
        kept = replace(manifest, states=[h for h in manifest.states if h.uid not in self.others])
        if self.regrouping.is_none:
            copied = copy_state(self.source, store, kept, folder, True, self.healed.append)
        else:
            copied = self.regrouping.copied(self.source, store, kept, attempt, self.healed.append)
            manifest = self.regrouping.renumbered(manifest)
        others = self.others.keys() & {handle.uid for handle in manifest.states}
        written = [h for uid in sorted(others) for h in self.others[uid].written(store, manifest, attempt, 0)]
        return replace(copied, states=[*copied.states, *written])

    def with_splits(self, splits: Mapping[str, Sequence[SplitProgress]]) -> Begins:
        """The same with the splits, by uid, of sources that begin elsewhere."""
        manifest = self.fit.manifest
        manifest = replace(manifest, splits={**manifest.splits, **splits})
        return replace(self, fit=replace(self.fit, manifest=manifest))

    def told(self) -> list[Announce]:
        """What people should know of the start, once the files are copied."""
        started = Announce("started_from_savepoint", self.notice.fields())
        return [started, *(Announce("damage_healed", {"message": problem}) for problem in self.healed)]

    def noted(self, created: JobCreated) -> JobCreated:
        """The first entry of the log, with what the job begins with."""
        return structs.replace(created, savepoint_id=self.savepoint_id, changes=self.changes or None)


def judge_start(
    store: CheckpointStore, view: LogView, origin: Origin | None, program: Program
) -> Begins | None:
    """What the job begins with; None: with nothing, or it has begun before and goes on.

    The same command goes on after a crash: a folder that was started from this savepoint may be named with it
    again. Raises UsageError for any other folder that has a job, if the savepoint does not fit the program,
    if it was started with other changes, and if a start from a savepoint was cut off and none is named now.
    """
    created = view.entries.get(0)
    began = created if isinstance(created, JobCreated) else None
    if origin is None:
        if began is not None and began.savepoint_id and not view.completed():
            options = " ".join(["--from", *([str(began.changes)] if began.changes else [])])
            raise UsageError(
                f"{store.describe()} was to begin with savepoint {began.savepoint_id}, and its start was cut "
                f"off: name the savepoint again with {options}"
            )
        return None
    taken = origin.folder.read()
    if view.next_position and (began is None or began.savepoint_id != taken.savepoint_id):
        raise UsageError(
            f"{store.describe()} has a job that was not started from {origin.folder.describe()}: a savepoint "
            "starts a folder of its own; give another --checkpoint-dir"
        )
    if began is not None and (origin.changes or not view.completed()):
        _check_same(store, began.changes or StartChanges(), origin.changes)
    if view.completed():
        return None
    manifest = replace(taken.manifest, job=program.job)  # a savepoint may become another job
    manifest, notes = adapted(manifest, origin.changes, program)
    files = origin.folder.files_of(taken)
    others = {uid: each.state_of(files, manifest, uid) for uid, each in origin.other_keys.items()}
    described = {uid: other.described for uid, other in others.items()}
    manifest = replace(manifest, operators={**manifest.operators, **described})
    regrouping = Regrouping(manifest.max_parallelism, program.max_parallelism)
    fit = restorable(files, replace(manifest, max_parallelism=regrouping.after), program)
    for uid, function in sorted(origin.changes.other_keys.items()):
        text = f"operator {uid!r}: what it keeps belongs to other keys, by {function}"
        notes = [*notes, StateNote(uid, "rekeyed", text)]
    fit = replace(fit, notes=[*notes, *fit.notes])
    notice = start_notice(taken, manifest, fit, program)
    return Begins(taken.savepoint_id, fit, files, origin.changes, notice, others, regrouping)


def _check_same(store: CheckpointStore, were: StartChanges, are: StartChanges) -> None:
    if were != are:
        raise UsageError(
            f"{store.describe()} was started with {were or 'no option that changes it'}, and what "
            f"it began with can't change: give them as they were, or another --checkpoint-dir"
        )
