"""Pure: from what is durable to what the next attempt starts from.

The state of a job is derived from its log and never stored. Two things are decided here: whether and
where a job goes on, and who gets which part of a manifest at the new parallelism. Whether a manifest fits
the program is `state_fits.py`'s.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onceflow.runtime.checkpoint.log import (
    AttemptStarted,
    CheckpointCompleted,
    JobCreated,
    JobFinished,
)
from onceflow.runtime.checkpoint.log_view import LogView
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle
from onceflow.runtime.contracts import Committable, SplitProgress
from onceflow.runtime.errors import CorruptCheckpointError, UsageError
from onceflow.runtime.state.description import BY_SUBTASK
from onceflow.runtime.state.key_groups import key_group_range, subtask_of_key_group


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """The state of a job whose log is empty."""


@dataclass(frozen=True, slots=True)
class Resumable:
    """A job that goes on with this attempt. `latest`: None until checkpoint 0 is durable."""

    job: str
    lineage: str
    latest: CheckpointManifest | None
    next_attempt: int
    next_checkpoint_id: int
    next_position: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A job with nothing left to do."""

    job: str
    lineage: str
    latest: CheckpointManifest


def derive_job(log: LogView, from_checkpoint_id: int | None = None) -> NeverStarted | Resumable | Finished:
    """What the log says. `from_checkpoint_id`: the user's choice instead of the latest.

    Raises CorruptCheckpointError if an entry that matters can't be read; it names the last good
    checkpoint. UsageError if the chosen checkpoint is not kept.
    """
    if log.next_position == 0:
        return NeverStarted()
    created = log.entries.get(0)
    if not isinstance(created, JobCreated):
        raise CorruptCheckpointError(
            log.corrupt.get(0, "log entry 0 is missing: is this a checkpoint folder?")
        )
    completed = [manifest for _, manifest in log.completed()]
    if from_checkpoint_id is not None:
        latest: CheckpointManifest | None = _chosen(completed, from_checkpoint_id)
    else:
        latest = _latest(log, completed)
        if isinstance(log.entries.get(log.next_position - 1), JobFinished):
            assert latest is not None, "a job finishes after a checkpoint"
            return Finished(created.job, created.lineage, latest)
    return Resumable(
        created.job,
        created.lineage,
        latest,
        _next_attempt(log),
        max((m.checkpoint_id for m in completed), default=-1) + 1 + len(log.corrupt),
        log.next_position,
    )


def _latest(log: LogView, completed: Sequence[CheckpointManifest]) -> CheckpointManifest | None:
    """The last one that the latest attempt completed, else the one it was started from."""
    by_id = {manifest.checkpoint_id: manifest for manifest in completed}
    good = (
        f"the last good checkpoint is {completed[-1].checkpoint_id}" if completed else "there is no good one"
    )
    latest_id: int | None = None
    attempt_position = 0
    for position, entry in sorted(log.entries.items()):
        match entry:
            case AttemptStarted():
                attempt_position, latest_id = position, entry.restored_checkpoint_id
            case CheckpointCompleted():
                latest_id = entry.manifest.checkpoint_id
            case JobCreated() | JobFinished():
                pass
    # An entry that can't be read may have been the latest checkpoint: going back behind it would read
    # input again whose output is committed. What lies before the latest attempt was decided by it.
    for position in sorted(log.corrupt):
        if position > attempt_position:
            raise CorruptCheckpointError(f"{log.corrupt[position]}; {good}")
    if latest_id is None:
        return None
    if latest_id not in by_id:
        reason = "; ".join(log.corrupt.values()) or "its entry in the log is missing"
        raise CorruptCheckpointError(f"checkpoint {latest_id} can't be read: {reason}; {good}")
    return by_id[latest_id]


def _chosen(completed: Sequence[CheckpointManifest], checkpoint_id: int) -> CheckpointManifest:
    for manifest in completed:
        if manifest.checkpoint_id == checkpoint_id:
            return manifest
    kept = ", ".join(str(m.checkpoint_id) for m in completed) or "none"
    raise UsageError(f"checkpoint {checkpoint_id} is not kept in this folder; kept are: {kept}")


def _next_attempt(log: LogView) -> int:
    """Above every attempt that was ever started, also in entries that can't be read."""
    attempts = [e.attempt for e in log.entries.values() if isinstance(e, AttemptStarted | JobFinished)]
    attempts += [e.manifest.attempt for e in log.entries.values() if isinstance(e, CheckpointCompleted)]
    return max(attempts, default=0) + 1 + len(log.corrupt)


# --- Who gets what ----------------------------------------------------------------------------------


@dataclass(slots=True)
class SlotRestore:
    """What the subtasks of one slot start from. JSON-able: it goes to the slot with its start message.

    A state handle may hold more key groups than the slot owns: `StateFiles.read` cuts it.
    """

    checkpoint_id: int
    states: dict[str, list[StateHandle]] = field(default_factory=dict)
    splits: dict[str, list[SplitProgress]] = field(default_factory=dict)
    committables: dict[str, list[Committable]] = field(default_factory=dict)


def assign(manifest: CheckpointManifest, parallelism: int) -> list[SlotRestore]:
    """Every part of the manifest to the slots of the new parallelism; each part to exactly the slots
    that own it: state by key group, splits balanced, committables by their owner. State without a key goes
    to all of them."""
    slots = [SlotRestore(manifest.checkpoint_id) for _ in range(parallelism)]
    for handle in manifest.states:
        described = manifest.operators.get(handle.uid)
        is_for_all = described is not None and described.distribution == BY_SUBTASK
        owners = _owners(handle.key_groups, manifest.max_parallelism, parallelism)
        for slot in range(parallelism) if is_for_all else owners:
            slots[slot].states.setdefault(handle.uid, []).append(handle)
    for first, (uid, splits) in enumerate(sorted(manifest.splits.items())):
        for slot, progress in _balance(splits, parallelism, first):
            slots[slot].splits.setdefault(uid, []).append(progress)
    for committable in manifest.committables:
        slot = owner_slot(committable.owner, parallelism)
        slots[slot].committables.setdefault(committable.uid, []).append(committable)
    return slots


def _owners(key_groups: range, max_parallelism: int, parallelism: int) -> range:
    """The slots that own at least one of these key groups."""
    first = subtask_of_key_group(max_parallelism, parallelism, key_groups.start)
    last = subtask_of_key_group(max_parallelism, parallelism, key_groups.stop - 1)
    assert key_groups.start in key_group_range(max_parallelism, parallelism, first)
    return range(first, last + 1)


def _balance(
    splits: Sequence[SplitProgress], parallelism: int, first: int
) -> Iterable[tuple[int, SplitProgress]]:
    """(slot, split): as many unfinished splits for each slot as for the others, give or take one. The
    same for the same splits, in whatever order they come."""
    for is_finished in (False, True):
        part = sorted((s for s in splits if s.is_finished is is_finished), key=lambda s: s.split.split_id)
        for index, progress in enumerate(part):
            yield (first + index) % parallelism, progress


def owner_slot(owner: str, parallelism: int) -> int:
    """The slot that commits for this owner: the same one for all committables of an owner."""
    number = int(owner) if owner.isdecimal() else zlib.crc32(owner.encode())
    return number % parallelism
