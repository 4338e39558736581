"""What a commit shows, what stays open, and which folders are complete. Pure: it asks nobody.

A part is one of three things in a checkpoint. *Whole*: its writer has finished it, and it is shown. *Open*:
its writer goes on with it, and so many bytes of it belong to the checkpoint. *Left*: it was open, and its
writer is no more, since a newer attempt commits; so much of it as the checkpoint has is shown. So no part is
ever handed from one attempt to the next, and rows of an open part are never lost: the ledger has it until it
is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceflow.connectors.files.written.part import Part


@dataclass(frozen=True, slots=True)
class Promise:
    """What one writer says at a barrier."""

    whole: Sequence[Part] = ()
    open: Sequence[Part] = ()
    watermark_ms: int | None = None
    """How far event time has come there. None: it is idle, and holds nobody back."""
    folders: Mapping[str, int] = field(default_factory=dict)
    """Folders of a span of time in which it has written rows: the watermark at which nothing more comes."""

    def as_json(self) -> dict[str, Any]:
        return {
            "whole": [part.as_json() for part in self.whole],
            "open": [part.as_json() for part in self.open],
            "watermark_ms": self.watermark_ms,
            "folders": dict(self.folders),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Promise:
        whole, still_open = ([Part.from_json(part) for part in value[name]] for name in ("whole", "open"))
        return Promise(whole, still_open, value["watermark_ms"], value["folders"])


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is remembered from one commit to the next, beside the files."""

    open: Sequence[Part] = ()
    folders: Mapping[str, int] = field(default_factory=dict)
    """Folders that have no success marker yet, and the watermark at which they get one."""

    def as_json(self) -> dict[str, Any]:
        return {"open": [part.as_json() for part in self.open], "folders": dict(self.folders)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Ledger:
        return Ledger([Part.from_json(part) for part in value["open"]], value["folders"])


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one commit; the same again after a crash in the middle of it."""

    whole: Sequence[Part]
    left: Sequence[Part]
    complete: Sequence[str]
    """Folders that get a success marker."""
    after: Ledger
    old_tails: Sequence[str]
    """Hidden files that only the ledger before knew."""


def plan_commit(before: Ledger, promises: Sequence[Promise], attempt: int) -> Plan:
    """`attempt`: the one that commits; whoever wrote parts of an earlier one is no more."""
    whole = [part for promise in promises for part in promise.whole]
    told = [part for promise in promises for part in promise.open]
    named = {part.hidden for part in (*whole, *told)}
    left = [part for part in before.open if part.hidden not in named]
    left += [part for part in told if part.attempt < attempt]
    still_open = [part for part in told if part.attempt >= attempt]
    folders = dict(before.folders)
    for promise in promises:
        folders.update(promise.folders)
    watermark_ms = min((p.watermark_ms for p in promises if p.watermark_ms is not None), default=None)
    complete = [
        folder
        for folder, end_ms in folders.items()
        if watermark_ms is not None and end_ms <= watermark_ms and not _is_below(folder, still_open)
    ]
    after = Ledger(still_open, {name: end_ms for name, end_ms in folders.items() if name not in complete})
    kept = {part.tail for part in still_open}
    tails = [part.tail for part in (*before.open, *told) if part.tail and part.tail not in kept]
    return Plan(whole, left, sorted(complete), after, sorted(set(tails)))


def _is_below(folder: str, parts: Sequence[Part]) -> bool:
    return any(part.name.startswith(f"{folder}/") for part in parts)
