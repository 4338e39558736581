"""Pure: PendingCheckpoint, from its trigger to its manifest."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from onceflow.runtime.checkpoint.manifest import CheckpointManifest, SlotSnapshot, StateHandle
from onceflow.runtime.checkpoint.state_paths import checkpoint_prefix
from onceflow.runtime.contracts import Committable, Json, SplitProgress
from onceflow.runtime.state.in_flight import is_in_flight


class Phase(Enum):
    """The states of a checkpoint, in order; only COLLECTING can be aborted."""

    COLLECTING = "collecting"
    """Triggered; some slots have not acked."""
    PERSISTING = "persisting"
    """All have acked; the manifest is on its way and may be durable already."""
    COMMITTING_SINKS = "committing sinks"
    """The manifest is durable; some sinks that commit once for all their writers have not."""
    COMMITTING = "committing"
    """The sinks that commit once have; some slots have not committed."""


@dataclass(slots=True)
class PendingCheckpoint:
    """One checkpoint in progress; every slot is heard once in each of its phases."""

    checkpoint_id: int
    attempt: int
    slots: int
    is_last: bool
    """The job stops when it is committed."""
    triggered_ms: int
    is_final: bool = False
    """The input had ended in all slots when it was triggered: after it the job has finished."""
    ends_attempt: bool = False
    """Sources send nothing after its barrier, and the attempt ends when it is committed."""
    phase: Phase = Phase.COLLECTING
    phase_since_ms: int = 0
    deadline_ms: float = float("inf")
    """When the patience with this phase ends; set by each `enter`."""
    manifest: CheckpointManifest | None = None
    durable_ms: int = 0
    """Since when its manifest is known to be durable."""
    hindrance: str = "no answer"
    """Why the sinks could not commit it, the last time that they tried."""
    _snapshots: dict[int, SlotSnapshot] = field(default_factory=dict)
    _committed: set[int] = field(default_factory=set)

    def enter(self, phase: Phase, now_ms: int, patience_ms: int) -> None:
        """The phase begins; it may take this long."""
        self.phase, self.phase_since_ms, self.deadline_ms = phase, now_ms, now_ms + patience_ms

    def ack(self, slot: int, snapshot: SlotSnapshot) -> bool:
        """Take a slot's part; True if it was the last one missing."""
        assert self.phase is Phase.COLLECTING, self.phase
        assert 0 <= slot < self.slots, f"slot {slot} of {self.slots}"
        assert slot not in self._snapshots, f"slot {slot} acked checkpoint {self.checkpoint_id} twice"
        self._snapshots[slot] = snapshot
        return len(self._snapshots) == self.slots

    def commit(self, slot: int) -> bool:
        """A slot has committed; True if it was the last one missing."""
        assert self.phase is Phase.COMMITTING, self.phase
        assert 0 <= slot < self.slots, f"slot {slot} of {self.slots}"
        self._committed.add(slot)
        return len(self._committed) == self.slots

    def missing_slots(self) -> list[int]:
        """Who has not answered in this phase; for messages."""
        heard = self._committed if self.phase is Phase.COMMITTING else self._snapshots.keys()
        return [slot for slot in range(self.slots) if slot not in heard]

    def overdue(self, now_ms: int) -> str:
        """Why it can't wait any longer in this phase, in words."""
        n, waited_ms = self.checkpoint_id, now_ms - self.phase_since_ms
        missing = ", ".join(str(slot) for slot in self.missing_slots()[:10])
        match self.phase:
            case Phase.COLLECTING:
                return f"no ack from slots {missing} within {waited_ms} ms"
            case Phase.PERSISTING:
                return f"can't tell after {waited_ms} ms whether checkpoint {n} is durable"
            case Phase.COMMITTING_SINKS:
                return f"the sinks did not commit checkpoint {n} within {waited_ms} ms: {self.hindrance}"
            case Phase.COMMITTING:
                return f"slots {missing} did not commit checkpoint {n} within {waited_ms} ms"

    def state_paths(self) -> frozenset[str]:
        """State files written for it so far."""
        return frozenset().union(*(snapshot.state_paths() for snapshot in self._snapshots.values()))

    def outcome(self, now_ms: int) -> dict[str, Json]:
        """What people hear of it once it is complete. Parts of the time are the maximum over slots."""
        assert self.manifest is not None
        parts = self._snapshots.values()
        return {
            "checkpoint_id": self.checkpoint_id,
            "attempt": self.attempt,
            "duration_ms": now_ms - self.triggered_ms,
            "commit_ms": now_ms - self.durable_ms,
            "bytes": self.manifest.total_bytes,
            "state": self.manifest.sizes_by_operator(),
            "written_bytes": self._written_bytes(self.manifest),
            "in_flight_bytes": sum(h.size for h in self.manifest.states if is_in_flight(h.uid)),
            "is_last": self.is_last,
            "alignment_ms": max((s.alignment_ms for s in parts), default=0),
            "sync_ms": max((s.sync_ms for s in parts), default=0),
            "write_ms": max((s.write_ms for s in parts), default=0),
        }

    def _written_bytes(self, manifest: CheckpointManifest) -> int:
        """The part of the state that was written for this checkpoint, and not for an earlier one."""
        own = checkpoint_prefix(self.attempt, self.checkpoint_id)
        tables = (table for handle in manifest.states for table in handle.tables)
        return sum(table.size for table in tables if table.path.startswith(own))

    def build_manifest(
        self, restored: CheckpointManifest, max_parallelism: int, now_ms: int, wall_offset_ms: int
    ) -> CheckpointManifest:
        """The union of all slots' parts, in slot order. `restored`: what the attempt began with."""
        assert len(self._snapshots) == self.slots, self.missing_slots()
        states: list[StateHandle] = []
        splits: dict[str, list[SplitProgress]] = {}
        committables: list[Committable] = []
        for slot in range(self.slots):
            part = self._snapshots[slot]
            states.extend(part.states)
            committables.extend(part.committables)
            for uid, progress in part.splits.items():
                splits.setdefault(uid, []).extend(progress)
        return CheckpointManifest(
            job=restored.job,
            lineage=restored.lineage,
            attempt=self.attempt,
            checkpoint_id=self.checkpoint_id,
            triggered_ms=self.triggered_ms + wall_offset_ms,
            completed_ms=now_ms + wall_offset_ms,
            parallelism=self.slots,
            max_parallelism=max_parallelism,
            states=states,
            splits=splits,
            committables=committables,
            is_last=self.is_last,
            is_drained=self.is_final,
            total_bytes=sum(table.size for handle in states for table in handle.tables),
            went_back=restored.went_back,
        )
