"""Deleting a savepoint: all of it, or nothing. What a crash interrupts, the same call finishes."""

from __future__ import annotations

from contextlib import suppress

from onceflow.runtime.checkpoint.copies import copy_path, delete_with_copies
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.log import JobCreated
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.savepoints.folder import SavepointFolder
from onceflow.runtime.checkpoint.savepoints.pins import (
    Pins,
    pin_path,
    pinned_folder,
    read_pin,
    record_path,
    unneeded,
)
from onceflow.runtime.checkpoint.savepoints.savepoint import RECORD_NAME, Savepoint
from onceflow.runtime.checkpoint.state_paths import STATE_FOLDER
from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError, UsageError

DELETING_NAME = "deleting.json"
"""In the folder of a copied savepoint, while it is deleted: its id."""


def delete_savepoint(folder: SavepointFolder) -> Savepoint | None:
    """Delete it; what it was. None: it had been deleted before, and what a crash had left is gone now.

    Files that are not the savepoint's own stay, and so do state files that a kept checkpoint or another
    savepoint names. Raises UsageError if there is no savepoint, CorruptCheckpointError, OSError.
    """
    left = _left(folder.store)
    if left is not None:
        _delete_files(folder.store, left)
        return None
    taken = folder.read()
    if taken.is_pinned:
        _unpin(folder.files_of(taken), taken)
    else:
        _delete_copied(folder.store, taken)
    return taken


def starts_from(store: CheckpointStore, savepoint_id: str) -> bool:
    """Whether the job in this checkpoint folder begins with this savepoint, and has not copied it yet."""
    view = read_log(store)
    created = view.entries.get(0)
    is_from = isinstance(created, JobCreated) and created.savepoint_id == savepoint_id
    return is_from and not view.completed()


def _unpin(store: CheckpointStore, taken: Savepoint) -> None:
    """Deletes the parts of a pin in the order that `pins.py` gives."""
    savepoint_id = taken.savepoint_id
    try:
        paths = read_pin(store, savepoint_id).paths
    except (FileNotFoundError, CorruptCheckpointError):
        paths = tuple(taken.manifest.paths())
    # 1. It is not a savepoint any more. A crash leaves its pin, which the job deletes when it starts.
    store.delete([record_path(savepoint_id)])
    # 2. Its files are free. A crash leaves them, and the job deletes them.
    store.delete([pin_path(savepoint_id)])
    # 3. So that they go also where no job will run again. First the log, then the pins: who pins one of these
    #    files now has found its checkpoint in the log.
    view = read_log(store)
    if not view.corrupt:  # else nobody knows what is named
        named = frozenset().union(*(manifest.paths() for _, manifest in view.completed()))
        delete_with_copies(store, unneeded(paths, named, Pins(store).paths()))
    if isinstance(store, LocalStore):
        store.remove_empty_folders(pinned_folder(savepoint_id))


def _delete_copied(store: CheckpointStore, taken: Savepoint) -> None:
    # 1. Note what is meant, so that the same command can finish it. A crash: it is a savepoint as before.
    with suppress(AlreadyExists):
        store.create(DELETING_NAME, taken.savepoint_id.encode())
    # 2. It is not a savepoint any more. A crash leaves files that the next call deletes.
    store.delete([RECORD_NAME])
    _delete_files(store, taken.savepoint_id)


def _left(store: CheckpointStore) -> str | None:
    """The id of the savepoint that was here until its deletion crashed."""
    with suppress(FileNotFoundError):
        store.read(RECORD_NAME)
        return None
    try:
        return store.read(DELETING_NAME).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise UsageError(f"{store.describe(DELETING_NAME)} is damaged: delete the folder by hand") from None


def _delete_files(store: CheckpointStore, savepoint_id: str) -> None:
    prefix = f"{STATE_FOLDER}/{savepoint_id}."
    for folder in (copy_path(STATE_FOLDER), STATE_FOLDER):  # the copies first, as ever
        paths = [status.path for status in store.list(folder)]
        store.delete(path for path in paths if path.removeprefix(copy_path("")).startswith(prefix))
    store.delete([DELETING_NAME])
    if isinstance(store, LocalStore):
        store.remove_empty_folders("")
