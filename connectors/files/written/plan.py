"""What a commit shows, what stays open, and which folders are complete. Pure: it asks nobody.

A part is one of three things in a checkpoint. *Whole*: its writer has finished it, and it is shown. *Open*:
its writer goes on with it, and so many bytes of it belong to the checkpoint. *Left*: it was open, and its
writer is no more, since a newer attempt commits; so much of it as the checkpoint has is shown. So no part is
ever handed from one attempt to the next, and rows of an open part are never lost: the ledger has it until it
is shown. Where small files are joined, a part is "shown" among those that wait: see compaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceflow.connectors.files.written.compaction import CompactPolicy, Group, Waiting, groups_due, waiting
from onceflow.connectors.files.written.part import Part
from onceflow.runtime.records import WATERMARK_MAX_MS


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
    waiting: Sequence[Waiting] = ()
    """Files that will be joined, oldest first."""
    joined: Sequence[str] = ()
    """Files that were joined by this commit, and may be there until the next one."""

    def as_json(self) -> dict[str, Any]:
        return {
            "open": [part.as_json() for part in self.open],
            "folders": dict(self.folders),
            "waiting": [file.as_json() for file in self.waiting],
            "joined": list(self.joined),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Ledger:
        """`waiting` and `joined` may not be there: versions before compaction wrote neither."""
        still_open = [Part.from_json(part) for part in value["open"]]
        files = [Waiting(*file) for file in value.get("waiting", ())]
        return Ledger(still_open, value["folders"], files, value.get("joined", []))


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one commit; the same again after a crash in the middle of it."""

    whole: Sequence[Part]
    left: Sequence[Part]
    complete: Sequence[str]
    """Folders that get a success marker."""
    groups: Sequence[Group]
    """Files that wait, and those among `whole` and `left` that do once they are shown, to be joined."""
    after: Ledger
    gone: Sequence[str]
    """Hidden files that nobody needs behind this commit: tails of parts, and files that were joined."""


def plan_commit(
    before: Ledger,
    promises: Sequence[Promise],
    attempt: int,
    checkpoint_id: int,
    joining: tuple[CompactPolicy | None, str],
    begun: Sequence[Group] | None = None,
) -> Plan:
    """`attempt`: the one that commits; whoever wrote parts of an earlier one is no more. `joining`: the
    policy of the program and the form of its files, see groups_due. `begun`: what an earlier attempt joined
    in this commit; None: it was not begun."""
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
    passed = [name for name, end_ms in folders.items() if watermark_ms is not None and end_ms <= watermark_ms]
    put = [waiting(part.name, part.size, checkpoint_id) for part in (*whole, *left)]
    files = [*before.waiting, *(file for file in put if file is not None)]

    def is_complete(folder: str) -> bool:
        return watermark_ms == WATERMARK_MAX_MS or any(_is_in(folder, span) for span in passed)

    groups = begun if begun is not None else groups_due(files, checkpoint_id, *joining, is_complete)
    joined = {name for group in groups for name in group.of}
    wait = [file for file in files if file.name not in joined]
    busy = [_seen_in(part) for part in still_open] + [file.folder for file in wait]
    complete = [name for name in passed if not any(_is_in(folder, name) for folder in busy)]
    without = {name: end_ms for name, end_ms in folders.items() if name not in complete}
    after = Ledger(still_open, without, wait, sorted(joined))
    kept = {part.tail for part in still_open}
    tails = [part.tail for part in (*before.open, *told) if part.tail and part.tail not in kept]
    return Plan(whole, left, sorted(complete), groups, after, sorted({*tails, *before.joined, *joined}))


def _seen_in(part: Part) -> str:
    """The folder in which a part will be seen."""
    file = waiting(part.name, part.size, 0)
    return part.name.rpartition("/")[0] if file is None else file.folder


def _is_in(folder: str, other: str) -> bool:
    return folder == other or folder.startswith(f"{other}/")
