"""Two savepoints side by side: what is the same, new, dropped and evolved."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_comparison import part_text, windows_text
from onceflow.runtime.contracts import Json
from onceflow.runtime.state.description import KeyColumn, StateDescription, StatePart


class Change(Enum):
    """`evolved`: the state is described otherwise; `moved`: a split was read further, or back."""

    SAME = "same"
    NEW = "new"
    DROPPED = "dropped"
    EVOLVED = "evolved"
    MOVED = "moved"


Counts = Mapping[str, Mapping[str, int]]
"""How much there is of each state and of timers, by the operator's uid and then by name. An operator of which
that is not known is missing."""


@dataclass(frozen=True, slots=True)
class CountDifference:
    """How much there is of one state, or of timers. None: there is no such state."""

    name: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class StateDifference:
    """One operator's table. Rows are keys, or keys and windows; None: it is not there."""

    uid: str
    table: str
    change: Change
    rows_before: int | None
    rows_after: int | None
    details: Sequence[str] = ()
    """What has evolved, as `state 'last': value() as string -> value() as int64`."""
    counts: Sequence[CountDifference] = ()
    """Its states, by name, and its timers."""


@dataclass(frozen=True, slots=True)
class SplitDifference:
    """How far one split of a source was read."""

    uid: str
    split: str
    change: Change
    before: Mapping[str, Json] | None
    after: Mapping[str, Json] | None


@dataclass(frozen=True, slots=True)
class Difference:
    """What `compare` finds, ordered by uid."""

    states: Sequence[StateDifference] = field(default_factory=list)
    splits: Sequence[SplitDifference] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        """Whether both hold the same kinds of state with as many rows, read up to the same offsets."""
        return all(
            each.change is Change.SAME
            and each.rows_before == each.rows_after
            and all(count.before == count.after for count in each.counts)
            for each in self.states
        ) and all(each.change is Change.SAME for each in self.splits)


def compare(
    before: CheckpointManifest,
    after: CheckpointManifest,
    counts_before: Counts | None = None,
    counts_after: Counts | None = None,
) -> Difference:
    """From the manifests, and from counts of states if they are given: no state is read."""
    counts = counts_before or {}, counts_after or {}
    return Difference(list(_states(before, after, *counts)), list(_splits(before, after)))


def _states(
    before: CheckpointManifest, after: CheckpointManifest, counts_before: Counts, counts_after: Counts
) -> Iterator[StateDifference]:
    rows_before, rows_after = _rows(before), _rows(after)
    for uid, table in sorted({*rows_before, *rows_after}):
        old, new = rows_before.get((uid, table)), rows_after.get((uid, table))
        details: Sequence[str] = ()
        if old is None:
            change = Change.NEW
        elif new is None:
            change = Change.DROPPED
        else:
            details = _evolved(before.operators.get(uid), after.operators.get(uid))
            change = Change.EVOLVED if details else Change.SAME
        counts = list(_counts(uid, table, (before, after), (counts_before, counts_after)))
        yield StateDifference(uid, table, change, old, new, details, counts)


def _counts(
    uid: str, table: str, manifests: Sequence[CheckpointManifest], counts: Sequence[Counts]
) -> Iterator[CountDifference]:
    """How much there is of each state of an operator in both, told with its table; nothing if that is not
    known of one of them."""
    described = [manifest.operators.get(uid) for manifest in manifests]
    if not any(each is not None and each.table == table for each in described) or any(
        each is not None and uid not in known for each, known in zip(described, counts, strict=True)
    ):
        return
    before, after = (known.get(uid, {}) for known in counts)
    for name in [*before, *(name for name in after if name not in before)]:
        yield CountDifference(name, before.get(name), after.get(name))


def _rows(manifest: CheckpointManifest) -> dict[tuple[str, str], int]:
    """The rows of each table, by uid and name."""
    rows = {(uid, described.table): 0 for uid, described in manifest.operators.items()}
    for handle in manifest.states:
        for name, count in handle.rows.items():
            rows[handle.uid, name] = rows.get((handle.uid, name), 0) + count
    return rows


def _evolved(was: StateDescription | None, now: StateDescription | None) -> list[str]:
    if was is None or now is None:
        return [] if was is now else ["one of the two has no description"]
    whole = (
        ("kind", was.kind, now.kind),
        ("key", _keys_text(was.keys), _keys_text(now.keys)),
        ("key of the right input", _keys_text(was.right_keys), _keys_text(now.right_keys)),
        ("windows", windows_text(was.windows), windows_text(now.windows)),
        ("timers", str(was.has_timers), str(now.has_timers)),
        ("distribution", was.distribution, now.distribution),
    )
    found = [f"{what}: {old} -> {new}" for what, old, new in whole if old != new]
    old_parts = {part.name: part for part in was.parts}
    new_parts = {part.name: part for part in now.parts}
    for name in sorted({*old_parts, *new_parts}):
        old_part, new_part = old_parts.get(name), new_parts.get(name)
        if old_part is None and new_part is not None:
            found.append(f"new: {part_text(new_part)}")
        elif new_part is None and old_part is not None:
            found.append(f"dropped: {part_text(old_part)}")
        elif old_part is not None and new_part is not None and old_part != new_part:
            found.append(f"evolved: {_part(old_part)} -> {_part(new_part)}")
    return found or ([] if was == now else ["the expressions of keys or windows differ"])


def _part(part: StatePart) -> str:
    return part_text(part) + ("" if part.ttl is None else f" with a ttl of {part.ttl}")


def _keys_text(keys: tuple[KeyColumn, ...]) -> str:
    return ", ".join(f"{key.name} {key.type}" for key in keys)


def _splits(before: CheckpointManifest, after: CheckpointManifest) -> Iterator[SplitDifference]:
    old, new = _positions(before), _positions(after)
    for uid, split in sorted({*old, *new}):
        was, now = old.get((uid, split)), new.get((uid, split))
        change = Change.SAME if was == now else Change.MOVED
        if was is None or now is None:
            change = Change.NEW if was is None else Change.DROPPED
        yield SplitDifference(uid, split, change, was, now)


def _positions(manifest: CheckpointManifest) -> dict[tuple[str, str], Mapping[str, Json]]:
    progress = itertools.chain.from_iterable(
        ((uid, each) for each in splits) for uid, splits in manifest.splits.items()
    )
    return {(uid, each.split.split_id): each.split.position for uid, each in progress}
