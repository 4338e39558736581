"""Whether what a checkpoint names is there, and is what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from onceflow.runtime.checkpoint.copies import COPIES_FOLDER, COPY_BYTES_MAX, copy_path
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.state_paths import STAGED_FOLDER, STATE_FOLDER
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.contracts import Committable
from onceflow.runtime.errors import CorruptCheckpointError

OnHealed = Callable[[str], None]
"""Called with what is wrong with a file that is read from its copy."""
ReadOutput = Callable[[CheckpointStore, Committable, OnHealed], None]
"""Reads what a sink has staged. Raises CorruptCheckpointError if it is gone or was altered, and has no copy
that is whole."""


def file_sizes(store: CheckpointStore) -> Mapping[str, int]:
    """The size in bytes of every file that a manifest may name, and of the copies, by path."""
    folders = (STATE_FOLDER, STAGED_FOLDER, COPIES_FOLDER)
    return {status.path: status.size for folder in folders for status in store.list(folder)}


def missing_state(manifest: CheckpointManifest, sizes: Mapping[str, int]) -> str | None:
    """The first state file that is not there in full, nor its copy."""
    for handle in manifest.states:
        for table in handle.tables:
            there = max(sizes.get(table.path, -1), sizes.get(copy_path(table.path), -1))
            if there < table.offset + table.size:
                return table.path
    return None


def state_with_copies_only(
    store: CheckpointStore, manifest: CheckpointManifest, sizes: Mapping[str, int]
) -> list[str]:
    """What is wrong with each state file that is gone or short while its copy is there in full; by sizes, as
    `missing_state` looks."""
    files = StateFiles(store, manifest.attempt)
    found: dict[str, str] = {}
    for handle in manifest.states:
        for table in handle.tables:
            there, end = sizes.get(table.path, -1), table.offset + table.size
            if there < end <= sizes.get(copy_path(table.path), -1):
                what = "is gone" if there < 0 else f"ends after {there} bytes, not {end}"
                found.setdefault(table.path, f"{files.where(handle, table)} {what}; read from its copy")
    return list(found.values())


def missing_output(manifest: CheckpointManifest, sizes: Mapping[str, int]) -> str | None:
    """The first staged file that is not there, nor its copy. Only the sink knows whether it matters: not,
    if the output of this checkpoint is committed."""
    for committable in manifest.committables:
        for path in committable.paths:
            if path not in sizes and copy_path(path) not in sizes:
                return path
    return None


def check_state_is_there(
    store: CheckpointStore, manifest: CheckpointManifest, kept: Iterable[CheckpointManifest]
) -> list[str]:
    """Raises CorruptCheckpointError, with the last good one of the kept checkpoints, if a state file is not
    there in full. The content is for the slots to check, which read it; staged output for the sinks, which
    need it only if it is not committed. Returns `state_with_copies_only`."""
    sizes = file_sizes(store)
    problem = missing_state(manifest, sizes)
    if problem is None:
        return state_with_copies_only(store, manifest, sizes)
    older = [m for m in kept if m.checkpoint_id < manifest.checkpoint_id]
    good = [m.checkpoint_id for m in older if missing_state(m, sizes) is None]
    offer = f"the last good checkpoint is {good[-1]}" if good else "there is no good one left"
    raise CorruptCheckpointError(
        f"checkpoint {manifest.checkpoint_id} is damaged: {store.describe(problem)} is gone or short, "
        f"and has no copy (files above {COPY_BYTES_MAX >> 20} MiB, and what builds on them, have none); "
        f"{offer}"
    )


def read_through(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    read_output: ReadOutput,
    on_healed: OnHealed,
) -> None:
    """Read all that the checkpoint names. Raises CorruptCheckpointError if something is gone or was altered,
    and its copy as well."""
    files = StateFiles(store, manifest.attempt, on_healed)
    for handle in manifest.states:
        state = files.read(handle, handle.key_groups)
        for table in state.tables:
            for _ in state.batches(table):
                pass
    for committable in manifest.committables:
        read_output(store, committable, on_healed)
