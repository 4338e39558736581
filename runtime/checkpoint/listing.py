"""What `onceflow checkpoints DIR` shows: completed checkpoints, and what others left behind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from onceflow.runtime.checkpoint.log import entry_path, read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_files import STATE_FOLDER
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import UsageError

_STATE_FILE = re.compile(rf"{STATE_FOLDER}/attempt-(\d+)/(\d+)\.")


class CheckpointStatus(Enum):
    """`incomplete`: in progress, or aborted and not cleaned up yet; it can't be restored."""

    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """A line of the list. What is not known is None; times are wall-clock ms."""

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


def list_checkpoints(store: CheckpointStore) -> list[CheckpointSummary]:
    """Newest last. Raises UsageError if this is no checkpoint folder. Reads while a job runs."""
    log = read_log(store)
    if log.next_position == 0:
        raise UsageError(f"{store.describe()} is no checkpoint folder: it has no log")
    lines = [_completed(store, position, manifest) for position, manifest in log.completed()]
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


def _completed(store: CheckpointStore, position: int, manifest: CheckpointManifest) -> CheckpointSummary:
    return CheckpointSummary(
        CheckpointStatus.COMPLETED,
        store.describe(entry_path(position)),
        manifest.checkpoint_id,
        manifest.attempt,
        manifest.completed_ms,
        manifest.completed_ms - manifest.triggered_ms,
        manifest.total_bytes,
        manifest.parallelism,
        manifest.is_last,
    )
