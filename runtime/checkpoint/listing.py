"""What `onceflow checkpoints DIR` shows: completed checkpoints, and what others left behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from onceflow.runtime.checkpoint.fingerprints import is_lasting
from onceflow.runtime.checkpoint.log import entry_path
from onceflow.runtime.checkpoint.log_view import LogView, read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_paths import STATE_FOLDER
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.verification import (
    OnHealed,
    ReadOutput,
    file_sizes,
    missing_output,
    missing_state,
    read_through,
    state_with_copies_only,
)
from onceflow.runtime.errors import CorruptCheckpointError, UsageError

_STATE_FILE = re.compile(rf"{STATE_FOLDER}/attempt-(\d+)/(\d+)\.")


LOOKS_MAX = 5
"""How often the list is made anew where a job removes its checkpoints faster than they are looked at."""


class CheckpointStatus(Enum):
    """`incomplete`: in progress, or aborted and not cleaned up yet; it can't be restored. `damaged`: a file
    that it names is gone or was altered. `unreadable`: its entry in the log is."""

    COMPLETED = "completed"
    DAMAGED = "damaged"
    INCOMPLETE = "incomplete"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """A line of the list. What is not known is None; times are wall-clock ms. `problem`: what is wrong with
    it; of a completed one, which files are read from their copies."""

    status: CheckpointStatus
    path: str
    checkpoint_id: int | None = None
    attempt: int | None = None
    completed_ms: int | None = None
    duration_ms: int | None = None
    total_bytes: int | None = None
    parallelism: int | None = None
    is_last: bool = False
    problem: str = ""


def list_checkpoints(
    store: CheckpointStore, read_output: ReadOutput | None = None
) -> list[CheckpointSummary]:
    """Newest last. Raises UsageError if this is not a checkpoint folder. Reads while a job runs.

    That files are there, in full, is looked at. `read_output`: read them all; see `read_through`.
    """
    for _ in range(LOOKS_MAX):
        log, lines = _look(store, read_output)
        if lines or not log.completed():
            break  # else retention has removed, meanwhile, all that the log named
    lines += [
        CheckpointSummary(CheckpointStatus.UNREADABLE, store.describe(entry_path(position)), problem=problem)
        for position, problem in sorted(log.corrupt.items())
    ]
    known = {(line.attempt, line.checkpoint_id) for line in lines}
    left: dict[tuple[int, int], int] = {}
    for status in store.list(STATE_FOLDER):
        match = _STATE_FILE.match(status.path)
        if match is not None and (key := (int(match[1]), int(match[2]))) not in known:
            left[key] = left.get(key, 0) + status.size
    for (attempt, checkpoint_id), size in left.items():
        folder = store.describe(f"{STATE_FOLDER}/attempt-{attempt:06d}")
        lines.append(
            CheckpointSummary(CheckpointStatus.INCOMPLETE, folder, checkpoint_id, attempt, total_bytes=size)
        )
    return sorted(lines, key=lambda line: (line.checkpoint_id is None, line.checkpoint_id or 0))


def _look(store: CheckpointStore, read_output: ReadOutput | None) -> tuple[LogView, list[CheckpointSummary]]:
    """The log, and the checkpoints that it names but for those that retention removes while they are looked
    at."""
    log = read_log(store)
    if log.next_position == 0:
        raise UsageError(f"{store.describe()} is not a checkpoint folder: it has no log")
    sizes = file_sizes(store)  # after the log: what it names was there before
    completed = log.completed()
    lines = []
    for position, manifest in completed:
        entry = log.healed.get(position)
        healed = [] if entry is None else [f"{entry}; read from its copy"]
        problem = _damage(store, manifest, sizes, position == completed[-1][0], read_output, healed.append)
        lines.append(_summary(store, position, manifest, problem, healed))
    if any(line.status is CheckpointStatus.DAMAGED for line in lines):
        kept = {manifest.checkpoint_id for _, manifest in read_log(store).completed()}
        lines = [line for line in lines if line.checkpoint_id in kept]
    return log, lines


def _damage(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    sizes: Mapping[str, int],
    is_latest: bool,
    read_output: ReadOutput | None,
    on_healed: OnHealed,
) -> str:
    """What is wrong with it, or "". The output of all but the latest is committed."""
    if path := missing_state(manifest, sizes):
        return f"{store.describe(path)} is gone or short, and has no copy"
    if is_latest and (path := missing_output(manifest, sizes)):
        return f"{store.describe(path)} is gone: it holds output that may not be committed yet"
    if read_output is None:
        for each in state_with_copies_only(store, manifest, sizes):
            on_healed(each)
        return ""
    try:
        needed = manifest if is_latest else replace(manifest, committables=())
        read_through(store, needed, read_output, on_healed)
    except CorruptCheckpointError as error:
        return str(error)
    except OSError as error:
        if not is_lasting(error):
            raise
        return str(error)
    return ""


def _summary(
    store: CheckpointStore, position: int, manifest: CheckpointManifest, damage: str, healed: list[str]
) -> CheckpointSummary:
    return CheckpointSummary(
        CheckpointStatus.DAMAGED if damage else CheckpointStatus.COMPLETED,
        store.describe(entry_path(position)),
        manifest.checkpoint_id,
        manifest.attempt,
        manifest.completed_ms,
        manifest.completed_ms - manifest.triggered_ms,
        manifest.total_bytes,
        manifest.parallelism,
        manifest.is_last,
        damage or "; ".join(healed),
    )
