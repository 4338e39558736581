"""A small language for tests of the coordinator: `job.running().at(100).acked().only(Persist)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.coordinator import Coordinator
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, SlotSnapshot, StateHandle, TableFile
from onceflow.runtime.checkpoint.options import CheckpointOptions

E = TypeVar("E", bound=ev.Effect)


def manifest(checkpoint_id: int, attempt: int = 0) -> CheckpointManifest:
    return CheckpointManifest("job", "beef", attempt, checkpoint_id, 0, 0, 2, 8)


def snapshot(slot: int, attempt: int = 1, checkpoint_id: int = 1) -> SlotSnapshot:
    path = f"state/{attempt}/{checkpoint_id}.{slot}"
    table = TableFile("t", path, 0, 10, "crc32:0", (1, 1, 1, 1))
    return SlotSnapshot((StateHandle("op", slot, slot * 4, slot * 4 + 4, (table,)),))


class Coordination:
    """A coordinator with two slots, and the time; `effects` of the latest event."""

    def __init__(
        self, slots: int = 2, max_parallelism: int = 8, has_committers: bool = False, **options: object
    ) -> None:
        settings = CheckpointOptions(interval_ms=100, **options)  # type: ignore[arg-type]
        self.marks: list[str] = []
        self.coordinator = Coordinator(
            slots, max_parallelism, settings, 1_000, self.marks.append, has_committers
        )
        self.slots = slots
        self.now_ms = 0
        self.effects: Sequence[ev.Effect] = self.coordinator.start(0)

    def on(self, event: ev.Event) -> Coordination:
        self.effects = self.coordinator.handle(event, self.now_ms)
        return self

    def at(self, now_ms: int) -> Coordination:
        self.now_ms = now_ms
        return self.on(ev.Tick())

    def running(self, attempt: int = 1, checkpoint_id: int = 0) -> Coordination:
        self.on(ev.AttemptOpened(attempt, manifest(checkpoint_id), checkpoint_id + 1))
        return self.on(ev.SlotsRunning(attempt))

    def acked(self, checkpoint_id: int = 1, attempt: int = 1) -> Coordination:
        for slot in range(self.slots):
            self.on(ev.SlotAcked(attempt, checkpoint_id, slot, snapshot(slot, attempt, checkpoint_id)))
        return self

    def committed(self, checkpoint_id: int = 1, attempt: int = 1) -> Coordination:
        for slot in range(self.slots):
            self.on(ev.SlotCommitted(attempt, checkpoint_id, slot))
        return self

    def completed(self, checkpoint_id: int = 1, attempt: int = 1) -> Coordination:
        self.acked(checkpoint_id, attempt).on(ev.Persisted(attempt, checkpoint_id))
        return self.committed(checkpoint_id, attempt)

    def found(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def only(self, kind: type[E]) -> E:
        (effect,) = self.found(kind)
        return effect

    @property
    def announced(self) -> list[str]:
        return [effect.event for effect in self.found(ev.Announce)]
