"""Deletes the checkpoints, starts of attempts, and files that may go. Called by the driver's I/O thread,
after a commit.

The start of an attempt goes once an attempt has begun after it from which all kept checkpoints are, and
after all checkpoints of its own: what a zombie writes at a position that is free again is told by that
(`log.py`).

A file may go when no kept manifest names it and no checkpoint that can still complete will:

- a file of a dropped manifest that no kept one names: its attempt's later checkpoints are built on the
  latest completed one, which is always kept;
- at the start of an attempt, any file of an earlier attempt that no kept manifest names: those attempts
  are fenced. What a zombie writes later is found at the next start;
- a state file of an aborted checkpoint (`Discard`), once a later checkpoint is complete. Until then nobody
  can tell whether it is needed: a file may be part of the checkpoint before, and an operator that had
  written it may name it again in the next one, which is under way. What no kept manifest names by then
  nobody will name: later checkpoints are built on the one that is complete.

And never a file that a savepoint names which is pinned in the folder: the pins are read after what is
dropped is dropped (`savepoints/pins.py`).

What goes, goes with its copy (`copies.py`), the copy first.

Never: anything of this attempt that is not named yet (it is being written), or of a newer attempt (we
are the zombie then, and our listing says nothing about it).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Set

from onceflow.runtime.checkpoint.copies import copy_path, delete_with_copies
from onceflow.runtime.checkpoint.local_store import TEMPORARY_PREFIX
from onceflow.runtime.checkpoint.log import LOG_FOLDER, encode_entry, entry_path
from onceflow.runtime.checkpoint.log_view import LogView
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.savepoints.pins import Pins, drop_abandoned, unneeded
from onceflow.runtime.checkpoint.state_paths import STAGED_FOLDER, STATE_FOLDER
from onceflow.runtime.checkpoint.store import CheckpointStore, DistantStore

_ATTEMPT = re.compile(rf"(?:{STATE_FOLDER}|{STAGED_FOLDER})/attempt-(\d+)/")
_TEMPORARY_LIVES_MS = 3_600_000
_STARTS_AT_ONCE = 16
"""The next checkpoint waits for no more deletions than these, however often the job was restarted."""


class Retention:
    """What one driver keeps. `view`: the log as it was read; `start`: where its attempt has begun."""

    def __init__(self, store: CheckpointStore, retained: int, view: LogView, start: int) -> None:
        assert retained >= 1
        self._store = store
        self._pins = Pins(store)
        self._retained = retained
        self._kept: list[tuple[int, int, Set[str]]] = []
        """Position in the log, checkpoint id, files."""
        self._discarded: set[str] = set()
        """Files of checkpoints that were aborted since the latest completed one, or dropped, and which are
        not deleted yet."""
        self._starts = [*view.starts(), start]
        """Where attempts have begun, oldest first, this one last."""
        self._strays = set() if view.corrupt else view.strays
        for position, manifest in view.completed():
            self.add(position, manifest)

    def add(self, position: int, manifest: CheckpointManifest) -> None:
        """Note that a checkpoint was completed."""
        assert not self._kept or manifest.checkpoint_id > self._kept[-1][1]
        self._kept.append((position, manifest.checkpoint_id, manifest.paths()))

    def discard(self, paths: Set[str]) -> None:
        """These state files belong to a checkpoint that was aborted: they go with the next `subsume`."""
        self._discarded |= paths

    def subsume(self, checkpoint_id: int) -> None:
        """This checkpoint is committed: drop what is beyond the retained number and older than it, and what
        was discarded.

        Manifests go first, oldest first, then the files: a crash in between leaves files that nobody
        names, and never a manifest without its files or a gap between kept entries.
        """
        droppable = [kept for kept in self._kept if kept[1] < checkpoint_id]
        dropped = droppable[: max(0, len(self._kept) - self._retained)]
        if not dropped and not self._discarded:
            return
        for position, _, paths in dropped:
            # What fails stays the first of what is kept, and is the next to go: no gap.
            delete_with_copies(self._store, [entry_path(position)])
            self._kept.pop(0)
            self._discarded |= paths
        self._drop_starts()
        free = self._unneeded(self._discarded)
        delete_with_copies(self._store, free)
        # What is pinned stays noted: it goes when its savepoint does.
        self._discarded -= self._named() | set(free)

    def _drop_starts(self) -> None:
        """One after the other, since a zombie's entry is told by the start that was dropped before."""
        for _ in range(_STARTS_AT_ONCE):
            if len(self._starts) < 2 or self._starts[1] > self._kept[0][0]:
                return
            delete_with_copies(self._store, [entry_path(self._starts[0])])
            self._starts.pop(0)

    def sweep(self, attempt: int, now_ms: int) -> list[str]:
        """At the start of this attempt: delete files of earlier ones that nobody names, and what fenced
        drivers have left in the log; their paths."""
        drop_abandoned(self._store, now_ms)
        found: dict[str, list[str]] = {}
        for folder in (STATE_FOLDER, STAGED_FOLDER):
            for status in [*self._store.list(folder), *self._store.list(copy_path(folder))]:
                path = status.path.removeprefix(copy_path(""))
                if _is_older(path, attempt):
                    found.setdefault(path, []).append(status.path)
        orphans = [each for path in self._unneeded(found) for each in found[path]]
        for stray in map(entry_path, sorted(self._strays)):
            orphans += [copy_path(stray), stray]
        for status in self._store.list(LOG_FOLDER):
            is_temporary = status.path.startswith(f"{LOG_FOLDER}/{TEMPORARY_PREFIX}")
            if is_temporary and status.modified_ms < now_ms - _TEMPORARY_LIVES_MS:
                orphans.append(status.path)
        self._store.delete(orphans)
        if isinstance(self._store, DistantStore):
            self._store.abandon_uploads(lambda path: _is_older(path, attempt))
        return orphans

    def _named(self) -> Set[str]:
        return frozenset().union(*(paths for _, _, paths in self._kept))

    def _unneeded(self, candidates: Iterable[str]) -> list[str]:
        return unneeded(candidates, self._named(), self._pins.paths())


def _is_older(path: str, attempt: int) -> bool:
    """Whether an attempt before this one has written it."""
    match = _ATTEMPT.match(path)
    return match is not None and int(match[1]) < attempt


def mend_copies(store: CheckpointStore, view: LogView) -> None:
    """At the start of an attempt: entries without a whole copy get one. Best effort."""
    if isinstance(store, DistantStore):  # which keeps none
        return
    with contextlib.suppress(OSError):
        for position, entry in view.entries.items():
            path, content = copy_path(entry_path(position)), encode_entry(position, entry)
            if _read_if_there(store, path) != content:
                store.write_copy(path, content)


def _read_if_there(store: CheckpointStore, path: str) -> bytes | None:
    try:
        return store.read(path)
    except FileNotFoundError:
        return None
