"""What the coordinator hears (events) and wants done (effects). All immutable; see `coordinator.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from onceflow.runtime.checkpoint.manifest import CheckpointManifest, SlotSnapshot
from onceflow.runtime.checkpoint.state_comparison import StateNote
from onceflow.runtime.contracts import Json

# --- Events: of attempts ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptOpened:
    """Answer: the attempt is in the log, older drivers are fenced. `notes`, `notices`: to be told."""

    attempt: int
    manifest: CheckpointManifest
    next_checkpoint_id: int
    notes: Sequence[StateNote] = ()
    notices: Sequence[Announce] = ()


@dataclass(frozen=True, slots=True)
class AlreadyFinished:
    """Answer to OpenAttempt: the job was finished before; there is nothing to do."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """Answer to OpenAttempt: none was opened, as far as we know. `is_unavailable`: the folder or a source."""

    reason: str
    is_fatal: bool = False
    is_fenced: bool = False
    is_unavailable: bool = False
    kind: str = ""


@dataclass(frozen=True, slots=True)
class SlotsRunning:
    """Every slot runs, and what the restored checkpoint promised is committed: the next may be triggered."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SlotDrained:
    """A slot's bounded input has ended and its last records have gone through all its tasks."""

    attempt: int
    slot: int


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A slot was lost, an error was raised, or the host gave up. `is_fatal`: a restart would meet it."""

    attempt: int
    reason: str
    is_fatal: bool = False
    is_fenced: bool = False
    """A slot was fenced. Never fatal: opening the next attempt finds out from the log by whom."""
    is_unavailable: bool = False
    """Something outside (a broker, a registry, a folder) could not be used."""
    fingerprints: Set[str] = frozenset()
    """What it has in common with the same failure another time; none: it may pass by itself."""


@dataclass(frozen=True, slots=True)
class FirstRecordRead:
    """A slot of this attempt has read a record. Told once for each attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SlotsAwaited:
    """The host has not room for all slots yet and goes on waiting: no failure, however long it takes."""

    attempt: int


# --- Events: of checkpoints ------------------------------------------------------------------------


class SlotAcked(msgspec.Struct, frozen=True, gc=False):
    """Everything of this slot that belongs to the checkpoint is durable; `snapshot` says where."""

    attempt: int
    checkpoint_id: int
    slot: int
    snapshot: SlotSnapshot


@dataclass(frozen=True, slots=True)
class SlotDeclined:
    """This slot can't take part in the checkpoint, but goes on."""

    attempt: int
    checkpoint_id: int
    slot: int
    reason: str
    is_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class Persisted:
    """Answer to Persist: the manifest is durable. The point of no return is behind us."""

    attempt: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class PersistNotDone:
    """Answer to Persist: the manifest is not durable and will not be."""

    attempt: int
    checkpoint_id: int
    reason: str
    is_unavailable: bool = False


@dataclass(frozen=True, slots=True)
class PersistUnknown:
    """Answer to Persist: nobody can tell yet. The same Persist may be asked for again."""

    attempt: int
    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class PersistConflict:
    """Answer to Persist: a newer attempt owns the log. The checkpoint is not, and we are fenced."""

    attempt: int
    checkpoint_id: int


class SlotCommitted(msgspec.Struct, frozen=True, gc=False):
    """All sink writers of this slot have committed the checkpoint and know it."""

    attempt: int
    checkpoint_id: int
    slot: int


@dataclass(frozen=True, slots=True)
class FinishMarked:
    """Answer to MarkFinished, written or not: a job that is not marked finds out again in its next run."""

    attempt: int


# --- Events: of the outside ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A user asks for a last checkpoint and a clean stop."""

    has_slots: bool = True
    """False: no slot has been told yet what to do, so there is nothing that a checkpoint would keep."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; wanted at `wake_at_ms` at the latest."""


OpenAnswer = AttemptOpened | AlreadyFinished | OpenFailed
AttemptEvent = SlotsRunning | SlotsAwaited | FirstRecordRead | SlotDrained | AttemptFailed
SlotAnswer = SlotAcked | SlotDeclined | SlotCommitted
PersistAnswer = Persisted | PersistNotDone | PersistUnknown | PersistConflict
Event = OpenAnswer | AttemptEvent | SlotAnswer | PersistAnswer | FinishMarked | StopRequested | Tick


# --- Effects ---------------------------------------------------------------------------------------


class Outcome(Enum):
    """How a run of the job ends."""

    FINISHED = "finished"
    """All input was read, all output is committed."""
    STOPPED = "stopped"
    """Asked to stop, and stopped after a last checkpoint; run again, it goes on."""
    CANCELLED = "cancelled"
    """Asked to stop, ended without a last checkpoint: what came after the last one is read once more."""
    FAILED = "failed"
    FENCED = "fenced"
    """Another driver runs the job now."""


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """Read the log, take its next position, say what to start from. Answer: one of OpenAnswer."""


@dataclass(frozen=True, slots=True)
class StartSlots:
    """Start the slots of this attempt from this manifest. Answer: SlotsRunning or AttemptFailed."""

    attempt: int
    manifest: CheckpointManifest


@dataclass(frozen=True, slots=True)
class Trigger:
    """Tell every slot: its sources emit this barrier. Answer: SlotAcked or SlotDeclined from each."""

    attempt: int
    checkpoint_id: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Persist:
    """Append the manifest to the log. Answer: Persisted, PersistNotDone, -Unknown or -Conflict."""

    manifest: CheckpointManifest


@dataclass(frozen=True, slots=True)
class Commit:
    """Tell every slot: the checkpoint is durable, commit it. Answer: SlotCommitted from each."""

    attempt: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Tell every slot: this checkpoint will not be; unblock channels, keep the output for the next."""

    attempt: int
    checkpoint_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Stop the slots of this attempt, without a last checkpoint. No answer needed: it is fenced."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Subsume:
    """It is committed: checkpoints beyond the retained number and files that none names may go. No answer."""

    attempt: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Let go of an aborted checkpoint's state files that no other one needs. Best effort, no answer."""

    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class MarkFinished:
    """Note in the log that the job has finished. Answer: FinishMarked."""

    attempt: int


@dataclass(frozen=True, slots=True)
class FinishJob:
    """The run is over: let go of the slots that still run (FINISHED and STOPPED: they have nothing left
    to do). `last_checkpoint_id`: the latest completed one, to go on from."""

    outcome: Outcome
    reason: str
    last_checkpoint_id: int | None


@dataclass(frozen=True, slots=True)
class Announce:
    """Something to tell: to the live line and the JSON events."""

    event: str
    fields: Mapping[str, Json] = field(default_factory=dict)


SlotEffect = StartSlots | Trigger | Commit | AbortCheckpoint | CancelAttempt
StoreEffect = OpenAttempt | Persist | Subsume | Discard | MarkFinished
Effect = SlotEffect | StoreEffect | FinishJob | Announce
