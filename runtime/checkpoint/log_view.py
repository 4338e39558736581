"""LogView: what the log says, read from its entries, and from their copies where those are damaged."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.log import (
    LOG_FOLDER,
    AttemptStarted,
    CheckpointCompleted,
    JobFinished,
    LogEntry,
    decode_entry,
    entry_path,
    has_checksum,
    is_newest,
    positions,
)
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.store import CheckpointStore, DistantStore
from onceflow.runtime.errors import CorruptCheckpointError, Retryable

_TRIES = 20


@dataclass(frozen=True, slots=True)
class LogView:
    """What was read: entries by position, and the positions that could not be read, with the reason."""

    entries: dict[int, LogEntry] = field(default_factory=dict)
    corrupt: dict[int, str] = field(default_factory=dict)
    healed: dict[int, str] = field(default_factory=dict)
    """Entries that were read from their copies, and why."""
    gone: set[int] = field(default_factory=set)
    """Healed entries that are not in the log any more: their positions have to be taken again."""
    strays: set[int] = field(default_factory=set)
    """Entries that do not count and are in none of the others: a driver that was fenced has written them, or
    their copies, where older ones had been dropped (`log.py`)."""
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

    def starts(self) -> list[int]:
        """The positions where attempts have begun, oldest first."""
        return [p for p, e in sorted(self.entries.items()) if isinstance(e, AttemptStarted)]


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
    """None: the newest entry that was listed, or one behind a checkpoint that was read, was deleted since.
    Then there are newer ones: what looks like the next position is only free again, or an entry looks lost.
    """
    view = LogView()
    # Where there is only a copy an entry was lost: retention deletes the copy first. Copies are listed first,
    # so that an entry that is dropped meanwhile is in the list, and no entry is missing that is there.
    copied = positions(store, copy_path(LOG_FOLDER))
    listed = sorted({*copied, *positions(store, LOG_FOLDER)})
    early = store.read_all(map(entry_path, listed)) if isinstance(store, DistantStore) else {}
    for position in listed:
        _read_entry(store, position, view, early.get(entry_path(position)))
    _leave_out_strays(view)
    known = {*view.entries, *view.corrupt, *view.strays}
    kept = [position for position, _ in view.completed()]
    dropped = [position for position in listed if position not in known]
    if dropped and (dropped[-1] == listed[-1] or dropped[-1] > min(kept, default=0)):
        return None
    if not kept and not is_newest(store, max(listed, default=-1)):
        return None  # where the newest checkpoint was, an attempt has begun that finds the place taken
    for position in range(min(kept, default=0), view.next_position):
        if position not in view.entries and position not in view.corrupt:
            view.corrupt[position] = f"{store.describe(entry_path(position))} is missing"
    return view


def _leave_out_strays(view: LogView) -> None:
    """What was dropped and has a copy again, since its writer was frozen before it wrote that: there is a gap
    behind it. And entries of attempts whose starts are gone, with a gap behind them or nothing built on them:
    a start is deleted after all else of its attempt."""
    dense = view.next_position
    while dense - 1 in view.entries or dense - 1 in view.corrupt:
        dense -= 1
    strays = {position for position in view.gone if 0 < position < dense}
    attempts = {
        entry.attempt
        for position, entry in view.entries.items()
        if isinstance(entry, AttemptStarted) and position not in strays
    }
    for position, entry in sorted(view.entries.items(), reverse=True):
        match entry:
            case CheckpointCompleted(manifest) if manifest.attempt not in attempts:
                is_stray = position < dense or not _is_built_on(manifest, position, view)
            case JobFinished(attempt=attempt) if attempt not in attempts:
                is_stray = position + 1 < view.next_position
            case _:
                is_stray = False
        if is_stray or position in strays:
            del view.entries[position]
            view.strays.add(position)
    view.gone.difference_update(strays)
    for position in strays:
        view.healed.pop(position)


def _is_built_on(manifest: CheckpointManifest, position: int, view: LogView) -> bool:
    """Whether the next entry goes on from this checkpoint, or may, or there is none."""
    match view.entries.get(position + 1):
        case None:
            return position + 1 == view.next_position or position + 1 in view.corrupt
        case AttemptStarted(restored_checkpoint_id=restored):
            return restored == manifest.checkpoint_id
        case CheckpointCompleted(following):
            return following.attempt == manifest.attempt
        case JobFinished(attempt=attempt):
            return attempt == manifest.attempt
        case _:
            return False


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
