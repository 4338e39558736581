"""Savepoints: a checkpoint as a folder of its own, from which any folder can be started.

    savepoint.json          who took it of what, and the manifest, with a checksum; created last
    state/<part of id>/...  the state files that the manifest names, paths relative to the folder

It can be moved and copied as a whole. No output travels with it: it is taken of a checkpoint that is known to
be committed, so whoever starts from it begins a lineage of his own and commits nothing of the old one's.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace

import msgspec
from msgspec import structs

from onceflow.runtime.checkpoint.copies import copy_path, create_copied_file
from onceflow.runtime.checkpoint.log import JobCreated, JobFinished, decode_checked, encode_checked
from onceflow.runtime.checkpoint.log_view import LogView, read_log
from onceflow.runtime.checkpoint.manifest import MANIFEST_VERSION, CheckpointManifest, check_version
from onceflow.runtime.checkpoint.state_files import STATE_FOLDER, StateFiles
from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import CorruptCheckpointError, UsageError
from onceflow.runtime.version import VERSION

RECORD_PATH = "savepoint.json"
_COPY_BYTES = 1 << 20
_TRIES = 5


class Savepoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `savepoint.json` holds. `taken_of` is the folder of the job, as its user named it; `parent` the id
    of the savepoint that this folder was started from, or ""."""

    format_version: int
    savepoint_id: str
    taken_of: str
    parent: str
    onceflow: str
    taken_ms: int
    manifest: CheckpointManifest


def take_savepoint(
    store: CheckpointStore, target: CheckpointStore, clock: Clock, committed_id: int | None = None
) -> Savepoint:
    """Copy the newest checkpoint of `store` that is known to be committed into `target`.

    A job may run there: if its retention deletes a file before it is copied, a newer checkpoint is taken.
    `committed_id`: a checkpoint that the caller knows to be committed. A crash leaves files without
    `savepoint.json`, which are no savepoint. Raises UsageError, CorruptCheckpointError, OSError.
    """
    if _is_there(target):
        raise UsageError(f"{target.describe()} has a savepoint already: give another folder")
    savepoint_id = uuid.uuid4().hex[:16]
    attempt = 0
    while True:
        attempt += 1
        view = read_log(store)
        manifest = committed_checkpoint(store, view, committed_id)
        try:
            copied = copy_state(store, target, manifest, f"{STATE_FOLDER}/{savepoint_id}.{attempt}")
            break
        except CorruptCheckpointError:
            newest = read_log(store).completed()[-1][1].checkpoint_id
            if attempt == _TRIES or newest == view.completed()[-1][1].checkpoint_id:
                raise
    taken = Savepoint(
        MANIFEST_VERSION,
        savepoint_id,
        store.describe(),
        _parent(view),
        VERSION,
        round(clock.now_ms()),
        copied,
    )
    try:
        target.create(RECORD_PATH, encode_checked(msgspec.json.encode(taken)))
    except AlreadyExists:
        raise UsageError(f"{target.describe()} has a savepoint already: give another folder") from None
    return taken


def read_savepoint(store: CheckpointStore) -> Savepoint:
    """What is in this folder. Raises UsageError if it is no savepoint, CorruptCheckpointError."""
    where = store.describe(RECORD_PATH)
    try:
        content = store.read(RECORD_PATH)
    except FileNotFoundError:
        raise UsageError(
            f"{store.describe()} is no savepoint: it has no {RECORD_PATH}; `onceflow savepoint` takes one"
        ) from None
    return decode_savepoint(content, where)


def decode_savepoint(content: bytes, where: str) -> Savepoint:
    """Strictly. Raises CorruptCheckpointError; UsageError if a newer onceflow wrote it."""
    taken = decode_checked(content, Savepoint, where)
    check_version(taken.format_version, where)
    return taken


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


def copy_state(
    source: CheckpointStore, target: CheckpointStore, manifest: CheckpointManifest, folder: str
) -> CheckpointManifest:
    """The manifest with its state files copied below `folder` of `target`, and checked there; without output.
    Raises CorruptCheckpointError if a file is gone or was altered, and its copy as well."""
    paths = {path: f"{folder}/{n:08d}.arrows" for n, path in enumerate(sorted(_state_paths(manifest)))}
    for path, new in paths.items():
        _copy(source, path, target, new)
    states = [
        structs.replace(
            handle, tables=tuple(structs.replace(table, path=paths[table.path]) for table in handle.tables)
        )
        for handle in manifest.states
    ]
    files = StateFiles(target, manifest.attempt)
    for handle in states:
        files.read(handle, handle.key_groups)
    return replace(manifest, states=states, committables=())


def _state_paths(manifest: CheckpointManifest) -> set[str]:
    return {table.path for handle in manifest.states for table in handle.tables}


def _copy(source: CheckpointStore, path: str, target: CheckpointStore, new: str) -> None:
    try:
        file = source.open(path)
    except FileNotFoundError:
        try:
            file = source.open(copy_path(path))
        except FileNotFoundError:
            raise CorruptCheckpointError(f"{source.describe(path)} is gone") from None
    with file, create_copied_file(target, new) as copy:
        while content := file.read(_COPY_BYTES):
            copy.write(content)


def _is_there(store: CheckpointStore) -> bool:
    with suppress(FileNotFoundError):
        store.read(RECORD_PATH)
        return True
    return False


def _parent(view: LogView) -> str:
    created = view.entries.get(0)
    return created.savepoint_id if isinstance(created, JobCreated) else ""
