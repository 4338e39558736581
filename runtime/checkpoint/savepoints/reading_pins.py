"""Pins of readers: what keeps a checkpoint's files while somebody reads them.

A pin without a savepoint (`pins.py`). Retention looks at pins, so the files stay; a reader that was killed
leaves its pin, which the next attempt of the job deletes, or the next reader, once it is an hour old. Who
takes longer than that may lose the files to either, and is told so.
"""

from __future__ import annotations

import contextlib
import uuid

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import MANIFEST_VERSION, CheckpointManifest
from onceflow.runtime.checkpoint.savepoints.pins import (
    Pin,
    drop_abandoned,
    encode_pin,
    pin_path,
    pinned_folder,
)
from onceflow.runtime.checkpoint.savepoints.taking import has_entry
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import OnceflowError, Retryable, UsageError

_TRIES = 5


def pin_to_read(
    store: CheckpointStore, clock: Clock, checkpoint_id: int | None = None
) -> tuple[CheckpointManifest, str | None]:
    """A completed checkpoint, the newest if none is asked for, and the id of the pin that keeps its files
    until `unpin`. None: the folder can't be written, and nothing keeps them.

    Raises UsageError if there is no such checkpoint, Retryable if each one was dropped before it was pinned.
    """
    with contextlib.suppress(OSError, OnceflowError):
        drop_abandoned(store, round(clock.now_ms()))
    for _ in range(_TRIES):
        position, manifest = _chosen(store, checkpoint_id)
        pin_id = uuid.uuid4().hex[:16]
        pin = Pin(MANIFEST_VERSION, pin_id, round(clock.now_ms()), tuple(sorted(manifest.paths())))
        try:
            store.create(pin_path(pin_id), encode_pin(pin))
        except (OSError, Retryable):
            return manifest, None
        # Whoever dropped the checkpoint before may have read the pins before: see pins.py.
        if has_entry(store, position):
            return manifest, pin_id
        unpin(store, pin_id)
    raise Retryable(
        f"the job in {store.describe()} dropped each of {_TRIES} checkpoints before it was pinned: try "
        "again, or run it with a higher --retained"
    )


def unpin(store: CheckpointStore, pin_id: str) -> None:
    """Let the files go. What keeps a pin from being deleted now is left to the next attempt or reader."""
    with contextlib.suppress(OSError, OnceflowError):
        store.delete([pin_path(pin_id)])
        if isinstance(store, LocalStore):
            store.remove_empty_folders(pinned_folder(pin_id))


def _chosen(store: CheckpointStore, checkpoint_id: int | None) -> tuple[int, CheckpointManifest]:
    completed = {manifest.checkpoint_id: (p, manifest) for p, manifest in read_log(store).completed()}
    if not completed:
        raise UsageError(
            f"{store.describe()} has no completed checkpoint, and is not a savepoint: give another"
        )
    chosen = max(completed) if checkpoint_id is None else checkpoint_id
    if chosen not in completed:
        raise UsageError(
            f"{store.describe()} has no completed checkpoint {chosen}: choose one of "
            f"{', '.join(map(str, sorted(completed)))}"
        )
    return completed[chosen]
