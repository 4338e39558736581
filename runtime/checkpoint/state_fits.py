"""Pure: whether a checkpoint's state is what a program computes, and what of it is restored.

Asked before an attempt is put into the log. State that another computation has made is refused in one
sentence: uid, what was, what is, what to do. What is added begins empty, and is said; what is gone is
dropped only if the user allows it, and that is said too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onceflow.runtime.checkpoint.in_flight_fits import fitting_in_flight
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_comparison import ALLOW, Comparison, StateNote
from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.in_flight import is_in_flight


@dataclass(frozen=True, slots=True)
class Program:
    """What a program says of itself to its checkpoint folder."""

    job: str
    max_parallelism: int
    states: Mapping[str, StateDescription | None]
    """What every operator, source and sink keeps, by uid; None: nothing that has to be described."""
    allows_dropped_state: bool = False
    sources: frozenset[str] = frozenset()
    """Which of them are sources."""
    ways: Mapping[str, StateDescription] = field(default_factory=dict)
    """What may be in flight, by the uid of the way; described where something is."""
    readers: Mapping[str, Readers] = field(default_factory=dict)
    """The types under which each of them reads its state, by uid."""

    def described_in(self, manifest: CheckpointManifest) -> dict[str, StateDescription]:
        """The descriptions that this manifest needs."""
        in_flight = {h.uid for h in manifest.states if h.uid in self.ways}
        return self.described | {uid: self.ways[uid] for uid in in_flight}

    @property
    def described(self) -> dict[str, StateDescription]:
        """The descriptions that are known, as a manifest takes them."""
        return {uid: state for uid, state in self.states.items() if state is not None}


@dataclass(frozen=True, slots=True)
class Fit:
    """The part of a checkpoint that is restored, and what is to be said of it."""

    manifest: CheckpointManifest
    notes: Sequence[StateNote]


def fit(
    manifest: CheckpointManifest, program: Program, in_files: Mapping[str, StateDescription] | None = None
) -> Fit:
    """What this program is restored with. `in_files`: what the files say of states that the manifest does
    not describe. Raises UsageError if something does not fit."""
    check_job(manifest, program)
    where = f"checkpoint {manifest.checkpoint_id}"
    notes: list[StateNote] = []
    kept = fitting_in_flight(manifest, program.ways, program.allows_dropped_state, notes)
    kept = _without_gone(kept, program, notes)
    rows: dict[str, int] = {}
    refused: list[UsageError] = []
    for handle in (h for h in kept.states if not is_in_flight(h.uid)):
        rows[handle.uid] = rows.get(handle.uid, 0) + sum(handle.rows.values())
    for uid in sorted(rows):
        now = program.states[uid]
        was = manifest.operators.get(uid) or (in_files or {}).get(uid)
        assert now is not None, uid
        if was is None or not was.is_whole:
            text = (
                f"the state of operator {uid!r} in {where} was written by an older onceflow, without a "
                "description: kinds, columns and functions of what it computes can't be compared"
            )
            notes.append(StateNote(uid, "unchecked", text))
        if was is not None:
            try:
                readers = program.readers.get(uid, {})
                dropped = program.allows_dropped_state
                notes += Comparison(uid, where, was, now, rows[uid], dropped, readers).notes()
            except UsageError as error:
                refused.append(error)
    if len(refused) > 1:
        together = "; and ".join(map(str, refused))
        raise UsageError(f"{len(refused)} states do not fit: {together}")
    if refused:
        raise refused[0]
    return Fit(kept, notes)


def check_job(manifest: CheckpointManifest, program: Program) -> None:
    """Raises UsageError if the checkpoint is of another job, or has other key groups."""
    if manifest.job != program.job:
        raise UsageError(
            f"the checkpoint folder belongs to job {manifest.job!r}, not {program.job!r}: "
            "use a folder of its own"
        )
    if manifest.max_parallelism != program.max_parallelism:
        raise UsageError(
            f"checkpoint {manifest.checkpoint_id} was written with max_parallelism "
            f"{manifest.max_parallelism}, not {program.max_parallelism}: make it what it was, or "
            "start from a savepoint in a folder of its own"
        )


def _without_gone(
    manifest: CheckpointManifest, program: Program, notes: list[StateNote]
) -> CheckpointManifest:
    """The manifest without what belongs to uids that the program has no more. Raises UsageError unless it is
    allowed."""
    known, n = program.states, manifest.checkpoint_id
    keepers = {uid for uid in known if known[uid] is not None}
    parts = (
        ("state", {h.uid for h in manifest.states if not is_in_flight(h.uid)} - keepers),
        ("splits", (set(manifest.splits) | set(manifest.finished)) - known.keys()),
        ("output that may not be committed yet", {c.uid for c in manifest.committables} - known.keys()),
    )
    for what, gone in parts:
        for uid in sorted(gone):
            lacks = "keeps none any more" if uid in known else "is not in the program"
            has = f"checkpoint {n} has {what} of operator {uid!r}, which {lacks}"
            if not program.allows_dropped_state:
                hint = "" if uid in known else nearest(uid, known)
                by_name = f"give the operator its uid back, start from a savepoint with --map-uid {uid}=NEW"
                todo = "make it what it was" if uid in known else by_name
                raise UsageError(f"{has}{hint}: {todo}, or start with {ALLOW}")
            notes.append(StateNote(uid, "dropped", f"{has}: dropped"))
    if not any(gone for _, gone in parts):
        return manifest
    states, splits, output = (gone for _, gone in parts)
    return replace(
        manifest,
        states=[h for h in manifest.states if h.uid not in states],
        splits={uid: progress for uid, progress in manifest.splits.items() if uid not in splits},
        finished={uid: value for uid, value in manifest.finished.items() if uid not in splits},
        committables=[c for c in manifest.committables if c.uid not in output],
    )
