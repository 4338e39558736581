"""Scratch folders: RocksDB's files of one operator in one attempt, which nobody needs afterwards.

A folder is made new, is its process's alone, and is removed when it is closed. A process that was killed
leaves it; the next one that makes a folder on this machine removes it. Who lives is told by a lock that the
system lets go of when the process is gone: a folder is locked before it gets the name by which it is found.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_ROOM = f"onceflow-state-{os.getuid()}"
_LOCK = "alive"
_UNNAMED = "new-"
_NAMED = "of-"
_ABANDONED_AFTER_S = 3_600.0


class ScratchFolder:
    """One folder. `TMPDIR` says on which disk it is."""

    def __init__(self, parent: Path | None = None) -> None:
        """Raises OSError. `parent`: where temporary files are, if nothing is said."""
        room = (Path(tempfile.gettempdir()) if parent is None else parent) / _ROOM
        room.mkdir(mode=0o700, exist_ok=True)
        if room.stat().st_uid != os.getuid():
            raise PermissionError(f"{room} belongs to somebody else")
        remove_abandoned(room)
        made = Path(tempfile.mkdtemp(prefix=_UNNAMED, dir=room))
        self._lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = room / made.name.replace(_UNNAMED, f"{_NAMED}{os.getpid()}-", 1)
        made.rename(self.path)

    def close(self) -> None:
        """Remove it, with all that is in it."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def remove_abandoned(room: Path) -> int:
    """Remove the folders of processes that are gone; returns how many."""
    removed = 0
    for folder in room.iterdir():
        if folder.name.startswith(_NAMED):
            removed += _remove_if_unlocked(folder)
        elif folder.name.startswith(_UNNAMED):
            removed += _remove_if_old(folder)
    return removed


def _remove_if_unlocked(folder: Path) -> bool:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # somebody is removing it
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(folder, ignore_errors=True)
        return True
    finally:
        os.close(lock)


def _remove_if_old(folder: Path) -> bool:
    """One whose maker ended between two lines of `ScratchFolder`."""
    try:
        is_old = time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_S
    except FileNotFoundError:
        return False
    if is_old:
        shutil.rmtree(folder, ignore_errors=True)
    return is_old
