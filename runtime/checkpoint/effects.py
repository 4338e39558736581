"""What the coordinator wants done. All immutable; `events.py` has the answers, and these names too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.contracts import Json


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
class Rescale:
    """Attempts that are opened from now on have so many slots. No answer."""

    slots: int


@dataclass(frozen=True, slots=True)
class StartSlots:
    """Start the slots of this attempt from this manifest. Answer: SlotsRunning or AttemptFailed."""

    attempt: int
    manifest: CheckpointManifest


@dataclass(frozen=True, slots=True)
class WarmSlots:
    """Let the slots of the next attempt come up beside those of this one, if there is room for both: they
    wait until that attempt is opened. `slots`: how many; 0: those that wait are not wanted any more. Answer:
    SlotsWarmed, unless it is 0."""

    attempt: int
    slots: int


@dataclass(frozen=True, slots=True)
class Trigger:
    """Tell every slot: its sources emit this barrier. Answer: SlotAcked or SlotDeclined from each."""

    attempt: int
    checkpoint_id: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Resume:
    """Tell every slot: all have their snapshots, so sources that stand still go on. No answer."""

    attempt: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Tell every slot: its sources end as if their input had. Answer: SlotDrained from each."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Persist:
    """Append the manifest to the log. Answer: Persisted, PersistNotDone, -Unknown or -Conflict."""

    manifest: CheckpointManifest


@dataclass(frozen=True, slots=True)
class CommitSinks:
    """Commit in the driver, for those sinks that commit once for all their writers.

    Answer: SinksCommitted, SinksNotCommitted, or AttemptFailed if trying again would not help.
    """

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
    """The checkpoint is committed: those beyond the retained number, and files that none names, may go."""

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


SlotEffect = StartSlots | WarmSlots | Trigger | Resume | Drain | Commit | AbortCheckpoint | CancelAttempt
StoreEffect = Rescale | OpenAttempt | Persist | CommitSinks | Subsume | Discard | MarkFinished
Effect = SlotEffect | StoreEffect | FinishJob | Announce
