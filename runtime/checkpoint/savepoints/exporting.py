"""A savepoint as a folder of its own somewhere else: what is pinned gets its copy of the state."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from onceflow.runtime.checkpoint.savepoints.copying import copy_state
from onceflow.runtime.checkpoint.savepoints.folder import SavepointFolder
from onceflow.runtime.checkpoint.savepoints.savepoint import Savepoint
from onceflow.runtime.checkpoint.savepoints.taking import check_is_free, finish_copy
from onceflow.runtime.checkpoint.state_paths import STATE_FOLDER
from onceflow.runtime.checkpoint.store import CheckpointStore


def export_savepoint(
    folder: SavepointFolder,
    target: CheckpointStore,
    on_healed: Callable[[str], None] = lambda problem: None,
) -> Savepoint:
    """The same savepoint, under its id, in `target`, on whatever store; each state file is read there once
    more and compared with its checksum. The original stays. `on_healed`: see `copy_state`.

    A crash leaves files without `savepoint.json`, which are no savepoint; call it again with another folder,
    or with this one once it is empty. Raises UsageError, CorruptCheckpointError, OSError.
    """
    taken = folder.read()
    check_is_free(target)
    place = f"{STATE_FOLDER}/{taken.savepoint_id}.1"
    copied = copy_state(folder.files_of(taken), target, taken.manifest, place, on_healed=on_healed)
    return finish_copy(target, structs.replace(taken, manifest=copied, is_pinned=False))
