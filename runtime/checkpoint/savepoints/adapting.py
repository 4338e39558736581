"""Pure: a savepoint's manifest as a start with other uids, or other offsets, wants it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from msgspec import structs

from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle
from onceflow.runtime.checkpoint.start_changes import StartChanges
from onceflow.runtime.checkpoint.state_comparison import StateNote
from onceflow.runtime.checkpoint.state_fits import Program
from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.state.in_flight import is_in_flight, way_ends

Kept = TypeVar("Kept")


def adapted(
    manifest: CheckpointManifest, changes: StartChanges, program: Program
) -> tuple[CheckpointManifest, Sequence[StateNote]]:
    """The manifest with these uids, and without the splits of sources that begin elsewhere; and what is to be
    said of it. Raises UsageError if savepoint and program have no such uids, or it would mix states."""
    notes: list[StateNote] = []
    manifest = _renamed(manifest, changes.new_uids, program, notes)
    return _without_splits(manifest, changes.starts, program, notes), notes


def _renamed(
    manifest: CheckpointManifest, new_uids: Mapping[str, str], program: Program, notes: list[StateNote]
) -> CheckpointManifest:
    sources = {*manifest.splits, *manifest.finished}
    kept = {uid for uid in _keepers(manifest) if not is_in_flight(uid)}
    where = f"checkpoint {manifest.checkpoint_id}"
    for old, new in new_uids.items():
        asked = f"--map-uid {old}={new}"
        if old not in kept:
            raise UsageError(
                f"{asked}: {where} of the savepoint has nothing of an operator {old!r}{nearest(old, kept)}: "
                "look at its uids with `onceflow savepoints show`"
            )
        if new not in program.states:
            raise UsageError(
                f"{asked}: the program has no operator {new!r}{nearest(new, program.states)}: "
                "look at its uids with `onceflow plan`"
            )
        if new in kept and new not in new_uids:
            raise UsageError(
                f"{asked}: the savepoint has something of {new!r}, too, and one operator can't go on with "
                "both: give that one another uid as well, or this one"
            )
        if (old in sources) is not (new in program.sources):
            is_one, is_none = ("savepoint", "program") if old in sources else ("program", "savepoint")
            raise UsageError(
                f"{asked}: it is a source in the {is_one} and none in the {is_none}: "
                "give a source for a source"
            )
        notes.append(StateNote(new, "renamed", f"operator {new!r} goes on with what {old!r} had in {where}"))
    if not new_uids:
        return manifest
    return replace(
        manifest,
        states=[
            structs.replace(h, uid=new_uids.get(h.uid, h.uid)) for h in _on_known_ways(manifest, new_uids)
        ],
        splits=_by_new_uid(manifest.splits, new_uids),
        finished=_by_new_uid(manifest.finished, new_uids),
        operators=_by_new_uid(manifest.operators, new_uids),
    )


def _without_splits(
    manifest: CheckpointManifest, starts: Mapping[str, object], program: Program, notes: list[StateNote]
) -> CheckpointManifest:
    for uid, start in starts.items():
        if uid not in program.sources:
            wrong = "is no source" if uid in program.states else "is not in the program"
            raise UsageError(
                f"--reset-offsets {uid}: {uid!r} {wrong}{nearest(uid, program.sources)}: name one of its "
                f"sources, {', '.join(sorted(program.sources))}"
            )
        count = len(manifest.splits.get(uid, ()))
        where = f"at {start!r}" if isinstance(start, str) else "at the offsets that were given"
        text = (
            f"source {uid!r} begins anew, {where}: how far its {count} splits were read at checkpoint "
            f"{manifest.checkpoint_id} is dropped"
        )
        notes.append(StateNote(uid, "reset", text))
    return replace(
        manifest,
        splits={uid: splits for uid, splits in manifest.splits.items() if uid not in starts},
        finished={uid: value for uid, value in manifest.finished.items() if uid not in starts},
    )


def _on_known_ways(manifest: CheckpointManifest, new_uids: Mapping[str, str]) -> Iterable[StateHandle]:
    """All handles but those of ways from or to an operator that is renamed, which have to be empty."""
    for handle in manifest.states:
        renamed = is_in_flight(handle.uid) and any(
            re.fullmatch(rf"{re.escape(old)}( .*)?", end) for old in new_uids for end in way_ends(handle.uid)
        )
        if renamed and any(handle.rows.values()):
            raise UsageError(
                f"checkpoint {manifest.checkpoint_id} of the savepoint has rows in flight on the way "
                f"{handle.uid!r}, so its ends can't be renamed: take a savepoint while the job runs with "
                "--barriers aligned"
            )
        if not renamed:
            yield handle


def _keepers(manifest: CheckpointManifest) -> set[str]:
    """All uids of which the manifest has something."""
    return {
        *(handle.uid for handle in manifest.states),
        *manifest.splits,
        *manifest.finished,
        *manifest.operators,
    }


def _by_new_uid(kept: Mapping[str, Kept], new_uids: Mapping[str, str]) -> dict[str, Kept]:
    return {new_uids.get(uid, uid): value for uid, value in kept.items()}
