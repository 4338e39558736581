"""Pure: whether rows that were in flight at a checkpoint can go on their way in a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_comparison import ALLOW, StateNote
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.in_flight import is_in_flight


def fitting_in_flight(
    manifest: CheckpointManifest,
    ways: Mapping[str, StateDescription],
    allows_dropped: bool,
    notes: list[StateNote],
) -> CheckpointManifest:
    """The manifest with those rows in flight that the program has a way for. `ways`: what the program's are,
    by uid. Others raise UsageError, or are dropped, and said in `notes`, if that is allowed."""
    rows: Counter[str] = Counter()
    for handle in manifest.states:
        if is_in_flight(handle.uid):
            rows[handle.uid] += sum(handle.rows.values())
    lost = {uid for uid in rows if manifest.operators.get(uid) != ways.get(uid)}
    for uid in sorted(lost):
        why = "whose rows have changed" if uid in ways else "which is not in the program"
        has = f"checkpoint {manifest.checkpoint_id} has {rows[uid]} rows in flight on the way {uid!r}, {why}"
        if not allows_dropped:
            raise UsageError(
                f"{has}: run the program that wrote it with barriers=aligned until its next checkpoint, and "
                f"then this one; or start with {ALLOW}, and they are lost"
            )
        notes.append(StateNote(uid, "dropped", f"{has}: dropped"))
    if not lost:
        return manifest
    return replace(manifest, states=[h for h in manifest.states if h.uid not in lost])
