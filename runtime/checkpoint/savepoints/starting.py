"""What a job begins with that is started from a savepoint: judged before its folder is touched."""

from __future__ import annotations

from dataclasses import dataclass, replace

from onceflow.runtime.checkpoint.log import JobCreated
from onceflow.runtime.checkpoint.log_view import LogView
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.old_states import restorable
from onceflow.runtime.checkpoint.savepoints.copying import copy_state
from onceflow.runtime.checkpoint.savepoints.folder import SavepointFolder
from onceflow.runtime.checkpoint.state_files import STATE_FOLDER, attempt_folder
from onceflow.runtime.checkpoint.state_fits import Fit, Program
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import UsageError


@dataclass(frozen=True, slots=True)
class Begins:
    """The part of a savepoint that a program is restored with."""

    savepoint_id: str
    fit: Fit
    source: CheckpointStore

    def copy_into(self, store: CheckpointStore, attempt: int) -> CheckpointManifest:
        """What checkpoint 0 of `store` is to hold, with its files there. They are this attempt's: what a
        crash leaves is deleted by the next one, which copies again."""
        folder = f"{attempt_folder(STATE_FOLDER, attempt)}/savepoint"
        return copy_state(self.source, store, self.fit.manifest, folder)


def judge_start(
    store: CheckpointStore, view: LogView, savepoint: SavepointFolder | None, program: Program
) -> Begins | None:
    """What the job begins with; None: with nothing, or it has begun before and goes on.

    The same command goes on after a crash: a folder that was started from this savepoint may be named with it
    again. Raises UsageError for any other folder that has a job, if the savepoint does not fit the program,
    and if a start from a savepoint was cut off and none is named now.
    """
    created = view.entries.get(0)
    origin = created.savepoint_id if isinstance(created, JobCreated) else None
    if savepoint is None:
        if origin and not view.completed():
            raise UsageError(
                f"{store.describe()} was to begin with savepoint {origin}, and its start was cut off: "
                "name the savepoint again with --from"
            )
        return None
    taken = savepoint.read()
    if view.next_position and origin != taken.savepoint_id:
        raise UsageError(
            f"{store.describe()} has a job that was not started from {savepoint.describe()}: a savepoint "
            "starts a folder of its own; give another --checkpoint-dir"
        )
    if view.completed():
        return None
    manifest = replace(taken.manifest, job=program.job)  # a savepoint may become another job
    files = savepoint.files_of(taken)
    return Begins(taken.savepoint_id, restorable(files, manifest, program), files)
