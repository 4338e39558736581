"""Pins: what keeps the files of a savepoint that is in the job's own checkpoint folder.

    savepoints/<id>/pin.json         the state files that must stay; created first, deleted last
    savepoints/<id>/savepoint.json   the savepoint itself; created last, deleted first

There is a savepoint if and only if both are there, so a crash leaves a whole one or none. Nobody locks the
folder: a job may run in it, or begin to. What makes this safe are orders, each proven by going through the
interleavings (`tests/simulation/test_pins.py`):

- whoever takes one creates the pin and looks for the checkpoint's log entry *after* that; whoever deletes
  files deletes the entry, or reads a log that does not have it, and reads the pins *after* that. So one of
  the two sees the other: the taker withdraws, or the files stay;
- a pin without a savepoint may be a taker's that is at work, or what a crash has left. Who wants it gone
  creates `savepoint.json` himself, with nothing in it: then the taker can't, and tries again under another
  id. And a taker looks for his pin once more after his own `savepoint.json` is there.

Safety hangs on no clock. PATIENCE_MS only spares takers that are at work.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Set

import msgspec

from onceflow.runtime.checkpoint.log import decode_checked, encode_checked
from onceflow.runtime.checkpoint.savepoints.savepoint import RECORD_NAME, decode_savepoint
from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError, UsageError

SAVEPOINTS_FOLDER = "savepoints"
PIN_NAME = "pin.json"
PATIENCE_MS = 3_600_000
ABANDONED = b"{}"
"""The content of a `savepoint.json` that nobody is to write any more."""
_PIN = re.compile(rf"{SAVEPOINTS_FOLDER}/([0-9a-f]+)/{re.escape(PIN_NAME)}")
_RECORD = re.compile(rf"{SAVEPOINTS_FOLDER}/([0-9a-f]+)/{re.escape(RECORD_NAME)}")


class Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `pin.json`. `pinned_ms`: when it was made, by its maker's clock."""

    format_version: int
    savepoint_id: str
    pinned_ms: int
    paths: tuple[str, ...]


def pinned_folder(savepoint_id: str) -> str:
    """The folder of a pinned savepoint in its job's checkpoint folder."""
    return f"{SAVEPOINTS_FOLDER}/{savepoint_id}"


def pin_path(savepoint_id: str) -> str:
    return f"{pinned_folder(savepoint_id)}/{PIN_NAME}"


def record_path(savepoint_id: str) -> str:
    return f"{pinned_folder(savepoint_id)}/{RECORD_NAME}"


def encode_pin(pin: Pin) -> bytes:
    return encode_checked(msgspec.json.encode(pin))


def read_pin(store: CheckpointStore, savepoint_id: str) -> Pin:
    """Raises FileNotFoundError, CorruptCheckpointError."""
    path = pin_path(savepoint_id)
    return decode_checked(store.read(path), Pin, store.describe(path))


class Pins:
    """The pins of a checkpoint folder, as who deletes files there reads them. Keeps what it has read: a pin
    never changes. One thread calls it."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._read: dict[str, frozenset[str]] = {}

    def paths(self) -> Set[str] | None:
        """The files that pins keep. None: a pin can't be read, nor its savepoint, so any file may be meant.

        Call it after the last look at which checkpoints are kept, never before. Raises OSError.
        """
        there = set(_ids(self._store, _PIN))
        self._read = {
            savepoint_id: paths for savepoint_id, paths in self._read.items() if savepoint_id in there
        }
        for savepoint_id in sorted(there - self._read.keys()):
            try:
                self._read[savepoint_id] = frozenset(_pinned(self._store, savepoint_id))
            except FileNotFoundError:
                continue  # deleted since
            except (CorruptCheckpointError, UsageError):
                return None
        return frozenset().union(*self._read.values())


def unneeded(candidates: Iterable[str], named: Set[str], pinned: Set[str] | None) -> list[str]:
    """Pure: which of these files may be deleted. `named`: by kept checkpoints; `pinned`: see `Pins.paths`."""
    return [] if pinned is None else sorted(path for path in candidates if path not in named | pinned)


def _pinned(store: CheckpointStore, savepoint_id: str) -> Iterable[str]:
    try:
        return read_pin(store, savepoint_id).paths
    except CorruptCheckpointError:
        path = record_path(savepoint_id)
        return decode_savepoint(store.read(path), store.describe(path)).manifest.paths()


def pinned_ids(store: CheckpointStore) -> Iterator[str]:
    """The ids of the savepoints that are pinned in this checkpoint folder."""
    yield from sorted({*_ids(store, _PIN)} & {*_ids(store, _RECORD)})


def _ids(store: CheckpointStore, kind: re.Pattern[str]) -> Iterator[str]:
    for status in store.list(SAVEPOINTS_FOLDER):
        if (match := kind.fullmatch(status.path)) is not None:
            yield match[1]


def drop_abandoned(store: CheckpointStore, now_ms: int) -> None:
    """Delete what takers have left that crashed: pins without a savepoint that are older than PATIENCE_MS,
    and records without a pin.

    Called at the start of an attempt. A crash in it leaves what the next call deletes. Raises OSError.
    """
    for savepoint_id in sorted({*_ids(store, _PIN), *_ids(store, _RECORD)}):
        record = record_path(savepoint_id)
        if not _is_abandoned(store, savepoint_id, now_ms):
            continue
        if _read(store, record) is not None and _read(store, pin_path(savepoint_id)) is None:
            store.delete([record])  # the pin is there before its record, and is never made again
            continue
        # 1. Take the name of the savepoint, so that nobody finishes it. A crash: the next call goes on.
        with contextlib.suppress(AlreadyExists):
            store.create(record, ABANDONED)
        if _read(store, record) != ABANDONED:
            continue  # its taker was faster: it is a savepoint
        # 2. Its files are free. A taker who creates the record from here on finds that his pin is gone.
        store.delete([pin_path(savepoint_id)])
        store.delete([record])


def _is_abandoned(store: CheckpointStore, savepoint_id: str, now_ms: int) -> bool:
    record = _read(store, record_path(savepoint_id))
    if record is not None:
        return record == ABANDONED or _read(store, pin_path(savepoint_id)) is None
    try:
        return read_pin(store, savepoint_id).pinned_ms < now_ms - PATIENCE_MS
    except (FileNotFoundError, CorruptCheckpointError):
        return False  # gone since; or damaged: it stays, and keeps everything


def _read(store: CheckpointStore, path: str) -> bytes | None:
    try:
        return store.read(path)
    except FileNotFoundError:
        return None
