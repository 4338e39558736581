"""What the coordinator hears (events); what it wants done is in `effects.py`. All immutable."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import msgspec

from onceflow.runtime.checkpoint.effects import (
    AbortCheckpoint as AbortCheckpoint,
)
from onceflow.runtime.checkpoint.effects import (
    Announce as Announce,
)
from onceflow.runtime.checkpoint.effects import (
    CancelAttempt as CancelAttempt,
)
from onceflow.runtime.checkpoint.effects import (
    Commit as Commit,
)
from onceflow.runtime.checkpoint.effects import (
    CommitSinks as CommitSinks,
)
from onceflow.runtime.checkpoint.effects import (
    Discard as Discard,
)
from onceflow.runtime.checkpoint.effects import (
    Drain as Drain,
)
from onceflow.runtime.checkpoint.effects import (
    Effect as Effect,
)
from onceflow.runtime.checkpoint.effects import (
    FinishJob as FinishJob,
)
from onceflow.runtime.checkpoint.effects import (
    MarkFinished as MarkFinished,
)
from onceflow.runtime.checkpoint.effects import (
    OpenAttempt as OpenAttempt,
)
from onceflow.runtime.checkpoint.effects import (
    Outcome as Outcome,
)
from onceflow.runtime.checkpoint.effects import (
    Persist as Persist,
)
from onceflow.runtime.checkpoint.effects import (
    Rescale as Rescale,
)
from onceflow.runtime.checkpoint.effects import (
    Resume as Resume,
)
from onceflow.runtime.checkpoint.effects import (
    SlotEffect as SlotEffect,
)
from onceflow.runtime.checkpoint.effects import (
    StartSlots as StartSlots,
)
from onceflow.runtime.checkpoint.effects import (
    StoreEffect as StoreEffect,
)
from onceflow.runtime.checkpoint.effects import (
    Subsume as Subsume,
)
from onceflow.runtime.checkpoint.effects import (
    Trigger as Trigger,
)
from onceflow.runtime.checkpoint.effects import (
    WarmSlots as WarmSlots,
)
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, SlotSnapshot
from onceflow.runtime.checkpoint.state_comparison import StateNote

# --- Events: of attempts ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptOpened:
    """Answer: the attempt is in the log, older drivers are fenced. `notes`, `notices`: to be told."""

    attempt: int
    manifest: CheckpointManifest
    next_checkpoint_id: int
    notes: Sequence[StateNote] = ()
    notices: Sequence[Announce] = ()

    def told(self) -> list[Announce]:
        """All that is told of it."""
        started = {"attempt": self.attempt, "checkpoint_id": self.manifest.checkpoint_id}
        changed = [{"uid": note.uid, "change": note.change, "text": note.text} for note in self.notes]
        return [
            Announce("attempt_started", started),
            *(Announce("state_changed", fields) for fields in changed),
            *self.notices,
        ]


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
    """A slot's input has ended, or was ended, and its last records have gone through all its tasks."""

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
    kind: str = ""
    """The name of the class of the error, where it was one."""


@dataclass(frozen=True, slots=True)
class FirstRecordRead:
    """A slot of this attempt has read a record. Told once for each attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SlotsAwaited:
    """The host has not room for all slots yet and goes on waiting: no failure, however long it takes."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SlotsWarmed:
    """Answer to WarmSlots: nothing more is to be waited for. `attempt`: the one that runs; `slots`: so many
    wait for the next one; 0: there is no room, or one of them was lost."""

    attempt: int
    slots: int


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


@dataclass(frozen=True, slots=True)
class SinksCommitted:
    """Answer to CommitSinks: the output of all those sinks is visible."""

    attempt: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class SinksNotCommitted:
    """Answer to CommitSinks: one at least is not known to have committed. It may be asked for again, since
    each is asked first what it has committed."""

    attempt: int
    checkpoint_id: int
    reason: str


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
    drains: bool = False
    """The sources shall end before, as if their input had: windows and timers fire."""


@dataclass(frozen=True, slots=True)
class RescaleRequested:
    """A user asks for another number of slots, at most the job's max_parallelism."""

    slots: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; wanted at `wake_at_ms` at the latest."""


OpenAnswer = AttemptOpened | AlreadyFinished | OpenFailed
AttemptEvent = SlotsRunning | SlotsAwaited | SlotsWarmed | FirstRecordRead | SlotDrained | AttemptFailed
SlotAnswer = SlotAcked | SlotDeclined | SlotCommitted
SinkAnswer = SinksCommitted | SinksNotCommitted
PersistAnswer = Persisted | PersistNotDone | PersistUnknown | PersistConflict
DriverAnswer = PersistAnswer | SinkAnswer | FinishMarked
Event = OpenAnswer | AttemptEvent | SlotAnswer | DriverAnswer | StopRequested | RescaleRequested | Tick
