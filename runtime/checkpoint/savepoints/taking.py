"""Taking a savepoint: pinned in the job's own checkpoint folder, or copied into a folder of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.log import JobCreated, JobFinished, entry_path
from onceflow.runtime.checkpoint.log_view import LogView, read_log
from onceflow.runtime.checkpoint.manifest import MANIFEST_VERSION, CheckpointManifest
from onceflow.runtime.checkpoint.savepoints.copying import copy_state
from onceflow.runtime.checkpoint.savepoints.pins import Pin, encode_pin, pin_path, record_path
from onceflow.runtime.checkpoint.savepoints.savepoint import RECORD_NAME, Savepoint, encode_savepoint
from onceflow.runtime.checkpoint.state_paths import STATE_FOLDER
from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.checkpoint.verification import check_state_is_there
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import CorruptCheckpointError, Indeterminate, Retryable, UsageError
from onceflow.runtime.version import VERSION

_TRIES = 5


def pin_savepoint(
    store: CheckpointStore,
    clock: Clock,
    committed_id: int | None = None,
    on_healed: Callable[[str], None] = lambda problem: None,
) -> Savepoint:
    """Pin the newest checkpoint of `store` that is known to be committed: `savepoints/<its id>` there is a
    savepoint then. No state is read or copied, so it takes the same time whatever the size.

    A job may run there: if its retention drops the checkpoint meanwhile, a newer one is taken.
    `committed_id`: a checkpoint that the caller knows to be committed. `on_healed(problem)`: a file is gone
    or short, and has a copy; no content is looked at. A crash leaves a whole savepoint or none. Raises
    UsageError, CorruptCheckpointError, Retryable, OSError.
    """
    for _ in range(_TRIES):
        view = read_log(store)
        manifest = committed_checkpoint(store, view, committed_id)
        taken = _savepoint(store, view, manifest, clock, is_pinned=True)
        position = next(p for p, m in view.completed() if m.checkpoint_id == manifest.checkpoint_id)
        if (healed := _pin(store, taken, position)) is not None:
            for problem in healed:
                on_healed(problem)
            return taken
    raise Retryable(
        f"the job in {store.describe()} dropped each of {_TRIES} checkpoints before it was pinned: try "
        "again, or run it with a higher --retained"
    )


def _pin(store: CheckpointStore, taken: Savepoint, position: int) -> list[str] | None:
    """What is wrong with its files that have copies, now that it is a savepoint. None: nothing is left of it.
    See `pins.py`."""
    savepoint_id, content = taken.savepoint_id, encode_savepoint(taken)
    pin = Pin(MANIFEST_VERSION, savepoint_id, taken.taken_ms, tuple(sorted(taken.manifest.paths())))
    # 1. From here on whoever reads the pins keeps the files. A crash leaves it to `drop_abandoned`.
    store.create(pin_path(savepoint_id), encode_pin(pin))
    # 2. Whoever dropped the checkpoint before may have read the pins before.
    if not has_entry(store, position):
        store.delete([pin_path(savepoint_id)])
        return None
    # 3. Now nobody deletes them: what is not there was lost. A crash is as after 1.
    try:
        healed = check_state_is_there(store, taken.manifest, [])
    except CorruptCheckpointError:
        if not _is_there(store, pin_path(savepoint_id)):  # as in 5
            return None
        store.delete([pin_path(savepoint_id)])
        raise
    # 4. The savepoint is there.
    try:
        _create(store, record_path(savepoint_id), content)
    except AlreadyExists:  # somebody took us for one that had crashed
        store.delete([pin_path(savepoint_id)])
        return None
    # 5. If it was taken for abandoned between 1 and 4 it has no pin, and is none.
    if not _is_there(store, pin_path(savepoint_id)):
        store.delete([record_path(savepoint_id)])
        return None
    return healed


def copy_savepoint(
    store: CheckpointStore,
    target: CheckpointStore,
    clock: Clock,
    committed_id: int | None = None,
    on_healed: Callable[[str], None] = lambda problem: None,
) -> Savepoint:
    """Copy the newest checkpoint of `store` that is known to be committed into `target`: a folder that can be
    moved, and is checked once it is there.

    A job may run there: if its retention deletes a file before it is copied, a newer checkpoint is taken.
    `committed_id`: as for `pin_savepoint`. `on_healed`: see `copy_state`. A crash leaves files without
    `savepoint.json`, which are no savepoint. Raises UsageError, CorruptCheckpointError, OSError.
    """
    check_is_free(target)
    savepoint_id = uuid.uuid4().hex[:16]
    attempt = 0
    while True:
        attempt += 1
        view = read_log(store)
        manifest, healed = committed_checkpoint(store, view, committed_id), list[str]()
        folder = f"{STATE_FOLDER}/{savepoint_id}.{attempt}"
        try:
            copied = copy_state(store, target, manifest, folder, on_healed=healed.append)
            break
        except CorruptCheckpointError:
            newest = read_log(store).completed()[-1][1].checkpoint_id
            if attempt == _TRIES or newest == view.completed()[-1][1].checkpoint_id:
                raise
    for problem in healed:
        on_healed(problem)
    return finish_copy(target, _savepoint(store, view, copied, clock, savepoint_id))


def finish_copy(target: CheckpointStore, taken: Savepoint) -> Savepoint:
    """Its files are in `target`: now it is a savepoint. Raises UsageError if there is another one."""
    try:
        _create(target, RECORD_NAME, encode_savepoint(taken))
    except AlreadyExists:
        raise _taken(target) from None
    return taken


def check_is_free(target: CheckpointStore) -> None:
    """Raises UsageError if this folder has a savepoint."""
    if _is_there(target, RECORD_NAME):
        raise _taken(target)


def committed_checkpoint(
    store: CheckpointStore, view: LogView, committed_id: int | None = None
) -> CheckpointManifest:
    """The newest checkpoint whose output is known to be committed: a later one was completed, the job has
    finished, it has no output that waits, or the caller knows. Raises UsageError if there is none."""
    completed = [manifest for _, manifest in view.completed()]
    if not completed:
        raise UsageError(f"{store.describe()} has no completed checkpoint")
    latest = completed[-1]
    is_over = isinstance(view.entries.get(view.next_position - 1), JobFinished)
    if is_over or not latest.committables or latest.checkpoint_id == committed_id:
        return latest
    if len(completed) > 1 and committed_id is None:
        return completed[-2]
    raise UsageError(
        f"the output of checkpoint {latest.checkpoint_id} in {store.describe()} may not be committed "
        "yet: run the job, and take the savepoint then"
    )


def _savepoint(
    store: CheckpointStore,
    view: LogView,
    manifest: CheckpointManifest,
    clock: Clock,
    savepoint_id: str | None = None,
    is_pinned: bool = False,
) -> Savepoint:
    """No output travels."""
    created = view.entries.get(0)
    return Savepoint(
        MANIFEST_VERSION,
        savepoint_id or uuid.uuid4().hex[:16],
        store.describe(),
        created.savepoint_id if isinstance(created, JobCreated) else "",
        VERSION,
        round(clock.now_ms()),
        replace(manifest, committables=()),
        is_pinned,
    )


def has_entry(store: CheckpointStore, position: int) -> bool:
    """Whether the checkpoint is kept: its copy is deleted before its entry."""
    return any(_is_there(store, path) for path in (entry_path(position), copy_path(entry_path(position))))


def _is_there(store: CheckpointStore, path: str) -> bool:
    with suppress(FileNotFoundError):
        store.read(path)
        return True
    return False


def _create(store: CheckpointStore, path: str, content: bytes) -> None:
    """Raises AlreadyExists if it is somebody else's."""
    try:
        store.create(path, content)
    except Indeterminate:
        with suppress(FileNotFoundError):
            if store.read(path) == content:
                return
        raise


def _taken(target: CheckpointStore) -> UsageError:
    return UsageError(f"{target.describe()} has a savepoint already: give another folder")
