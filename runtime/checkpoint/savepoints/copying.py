"""State files, copied from one store to another and checked there."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from onceflow.runtime.checkpoint.copies import COPY_BYTES_MAX, copy_path, create_copied_file
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError

_COPY_BYTES = 1 << 20


def copy_state(
    source: CheckpointStore,
    target: CheckpointStore,
    manifest: CheckpointManifest,
    folder: str,
    links: bool = False,
) -> CheckpointManifest:
    """The manifest with its state files copied below `folder` of `target`, and checked there; without output.
    `links`: a large file gets another name instead where both are folders of one file system. Raises
    CorruptCheckpointError if a file is gone or was altered, and its copy as well."""
    paths = {path: f"{folder}/{n:08d}.arrows" for n, path in enumerate(sorted(_state_paths(manifest)))}
    large = _large_paths(manifest) if links else set()
    for path, new in paths.items():
        if not (path in large and isinstance(target, LocalStore) and target.link(source, path, new)):
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


def _large_paths(manifest: CheckpointManifest) -> set[str]:
    """The paths of files that have no second copy; small ones are written twice in each folder."""
    tables = [table for handle in manifest.states for table in handle.tables]
    return {table.path for table in tables if table.offset + table.size > COPY_BYTES_MAX}


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
