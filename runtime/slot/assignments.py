"""What each slot of an attempt starts from: its part of a manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceflow.runtime.checkpoint.manifest import AttemptEntry, CheckpointManifest
from onceflow.runtime.checkpoint.recovery import assign
from onceflow.runtime.control.messages import Assignment

Assign = Callable[[int, Sequence[tuple[str, int]]], Assignment]
"""(slot, data addresses of all slots) -> what that slot starts from."""


def assignments(
    attempt: int, manifest: CheckpointManifest, parallelism: int, entry: AttemptEntry | None
) -> Assign:
    """Every slot's part of a manifest at this parallelism, for a SlotGroup. `entry`: the attempt's own in the
    log."""
    restores = assign(manifest, parallelism)

    def assignment(slot: int, peers: Sequence[tuple[str, int]]) -> Assignment:
        restore = restores[slot]
        return Assignment(
            attempt=attempt,
            slot=slot,
            parallelism=parallelism,
            lineage=manifest.lineage,
            restored_checkpoint_id=manifest.checkpoint_id,
            peers=peers,
            splits=restore.splits,
            states=[handle for handles in restore.states.values() for handle in handles],
            committables=restore.committables,
            attempt_entry=entry,
            is_drained=manifest.is_drained,
            went_back=manifest.went_back,
        )

    return assignment
