"""LogView: what the log says, read from its entries, and from their copies where those are damaged."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.log import (
    LOG_FOLDER,
    CheckpointCompleted,
    LogEntry,
    decode_entry,
    entry_path,
    has_checksum,
)
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.store import CheckpointStore, DistantStore
from onceflow.runtime.errors import CorruptCheckpointError, Retryable

_TRIES = 20
_NAME = re.compile(rf"{LOG_FOLDER}/(\d{{10}})\.json")


@dataclass(frozen=True, slots=True)
class LogView:
    """What was read: entries by position, and the positions that could not be read, with the reason."""

    entries: dict[int, LogEntry] = field(default_factory=dict)
    corrupt: dict[int, str] = field(default_factory=dict)
    healed: dict[int, str] = field(default_factory=dict)
    """Entries that were read from their copies, and why."""
    gone: set[int] = field(default_factory=set)
    """Healed entries that are not in the log any more: their positions have to be taken again."""
    unchecked: set[int] = field(default_factory=set)
    """Entries without a checksum."""

    @property
    def next_position(self) -> int:
        return max([-1, *self.entries, *self.corrupt]) + 1

    def completed(self) -> list[tuple[int, CheckpointManifest]]:
        """(position, manifest) of the completed checkpoints that are kept, oldest first."""
        return [
            (p, e.manifest) for p, e in sorted(self.entries.items()) if isinstance(e, CheckpointCompleted)
        ]


def read_log(store: CheckpointStore) -> LogView:
    """Everything that is durable. An entry that can't be read, nor its copy, is noted, not raised:
    `recovery.py` decides whether it matters. An entry deleted by retention while we read is left out.

    Raises Retryable if a running job drops even the newest entries faster than they can be read.
    """
    for _ in range(_TRIES):
        if (view := _read_once(store)) is not None:
            return view
    raise Retryable(f"the log in {store.describe()} changes faster than it can be read")


def _read_once(store: CheckpointStore) -> LogView | None:
    """None: the newest entry that was listed, or every checkpoint, was deleted since. Then there are newer
    ones, and the position that looks like the next one is only free again: who took it would fence nobody."""
    view = LogView()
    # Where there is only a copy an entry was lost: retention deletes the copy first.
    positions = sorted({*_positions(store, LOG_FOLDER), *_positions(store, copy_path(LOG_FOLDER))})
    early = store.read_all(map(entry_path, positions)) if isinstance(store, DistantStore) else {}
    for position in positions:
        _read_entry(store, position, view, early.get(entry_path(position)))
    dropped = [p for p in positions if p not in view.entries and p not in view.corrupt]
    if dropped and (dropped[-1] == positions[-1] or not view.completed()):
        return None
    if not view.completed() and not is_newest(store, max(positions, default=-1)):
        return None  # where the newest checkpoint was, an attempt has begun that finds the place taken
    kept = [position for position, _ in view.completed()]
    for position in range(min(kept, default=0), view.next_position):
        if position not in view.entries and position not in view.corrupt:
            view.corrupt[position] = f"{store.describe(entry_path(position))} is missing"
    return view


def is_newest(store: CheckpointStore, position: int) -> bool:
    """Whether no entry is beyond this one. Asked by who has appended to a log that another driver may write:
    if that one dropped the entry of this very position meanwhile, the append has fenced nobody."""
    return max(_positions(store, LOG_FOLDER), default=-1) <= position


def _positions(store: CheckpointStore, folder: str) -> list[int]:
    """The positions of the entries, or of their copies. The temporary name of a create that crashed is passed
    over."""
    names = (status.path[-len(entry_path(0)) :] for status in store.list(folder))
    return [int(match[1]) for match in map(_NAME.fullmatch, names) if match is not None]


def _read_entry(store: CheckpointStore, position: int, view: LogView, early: bytes | None) -> None:
    """Put this entry into the view, or what is wrong with it. `early`: its bytes, if they were read."""
    unreadable: OSError | None = None
    try:
        problem = _read_original(store, position, view, early)
    except OSError as error:  # a broken disk, which the copy need not be on; or a file system that is away
        unreadable, problem = error, f"{store.describe(entry_path(position))} can't be read: {error}"
    if problem is None:
        return
    copy = _read_copy(store, position)
    if copy is None:
        if unreadable is not None:
            raise unreadable
        if problem:
            view.corrupt[position] = problem
        return
    if not problem and _read_original(store, position, view) is None:
        return  # created while we looked
    view.entries[position] = copy
    view.healed[position] = problem or f"{store.describe(entry_path(position))} is missing"
    if not problem:
        view.gone.add(position)


def _read_original(
    store: CheckpointStore, position: int, view: LogView, early: bytes | None = None
) -> str | None:
    """Read the original of an entry. None: the view has it; else what is wrong: "" if it is not there."""
    path = entry_path(position)
    where = store.describe(path)
    try:
        content = store.read(path) if early is None else early
        entry = decode_entry(content, position, where)
    except FileNotFoundError:
        return ""
    except CorruptCheckpointError as error:
        return str(error)
    if not has_checksum(content):
        # An onceflow that writes no checksums refuses to go on behind an entry that has one.
        if view.entries.keys() - view.unchecked:
            return f"{where} was altered: it has no checksum, though entries before it have"
        view.unchecked.add(position)
    view.entries[position] = entry
    return None


def _read_copy(store: CheckpointStore, position: int) -> LogEntry | None:
    with contextlib.suppress(OSError, CorruptCheckpointError):
        content = store.read(copy_path(entry_path(position)))
        return decode_entry(content, position, "") if has_checksum(content) else None
    return None
