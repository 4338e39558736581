"""CheckpointLog: the durable truth of a job, as numbered entries that are each created once.

`log/0000000000.json` is JobCreated; then AttemptStarted and CheckpointCompleted follow as they happen.
An entry is written by conditional create at the position after the last. So whoever starts an attempt
takes the position that the driver before would have written next: that driver's next append conflicts,
and it is fenced. This needs two things, which hold by construction:

- positions are dense when they are written: an attempt appends only right after what it has read;
- entries are deleted oldest first, and the newest never (`retention.py`). So a position that a zombie waits
  to write is taken, or it is free again and there are entries beyond it. Whoever has created an entry looks
  for those before it counts as written. What a zombie has left there is known by the start of its attempt,
  which is gone, and because nothing was built on it (`log_view.py`).

Every entry holds something that only its writer knows (lineage, owner, attempt), so equal content means
"it was me" after an unknown outcome.

An entry ends with a checksum of all bytes before it: a flipped bit in an offset would still be valid JSON.
Entries up to format version 2 have none; one of a later version without it is damaged, whatever it says.
After an entry was created a copy of it is written (`copies.py`), never before: so a copy is proof that the
log has exactly this entry, and is read where the entry is damaged or gone.
"""

from __future__ import annotations

import contextlib
import re
from typing import TypeVar

import msgspec
from isal import isal_zlib  # zlib's numbers, at four times its speed

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.manifest import MANIFEST_VERSION, CheckpointManifest, check_version
from onceflow.runtime.checkpoint.start_changes import StartChanges
from onceflow.runtime.checkpoint.store import AlreadyExists, CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError, Fenced, Indeterminate, Retryable

LOG_FOLDER = "log"
_CHECKED_FROM_VERSION = 3
"""The first format version whose entries all have a checksum."""
_CHECKSUM = b',"checksum":"crc32:%08x"}'
_CHECKSUM_AT_THE_END = re.compile(rb',"checksum":"crc32:([0-9a-f]{8})"\}')
_CHECKSUM_BYTES = len(_CHECKSUM % 0)
_TRIES = 3
_NAME = re.compile(rf"{LOG_FOLDER}/(\d{{10}})\.json")
T = TypeVar("T")


class LogMoved(Retryable):
    """The log has more entries than this driver knew, none of a newer attempt: read it again."""


class JobCreated(
    msgspec.Struct,
    frozen=True,
    tag="job_created",
    tag_field="kind",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Position 0. `lineage` is this folder's random id; `savepoint_id` what it was started from, or "", and
    `changes` what was changed of that, if anything."""

    job: str
    lineage: str
    created_ms: int
    savepoint_id: str = ""
    changes: StartChanges | None = None


class AttemptStarted(
    msgspec.Struct, frozen=True, tag="attempt_started", tag_field="kind", forbid_unknown_fields=True
):
    """An attempt owns the log from here on. `owner` is the driver's random id. No restored checkpoint:
    the very first start, before the initial checkpoint."""

    attempt: int
    restored_checkpoint_id: int | None
    owner: str
    started_ms: int
    parallelism: int


class CheckpointCompleted(
    msgspec.Struct, frozen=True, tag="checkpoint_completed", tag_field="kind", forbid_unknown_fields=True
):
    """The point of no return of a checkpoint. Checkpoint 0 holds the sources' initial splits."""

    manifest: CheckpointManifest


class JobFinished(
    msgspec.Struct, frozen=True, tag="job_finished", tag_field="kind", forbid_unknown_fields=True
):
    """All input was read and all output committed: nothing to do ever again."""

    attempt: int
    finished_ms: int


LogEntry = JobCreated | AttemptStarted | CheckpointCompleted | JobFinished


class LogRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry and where it is: written in the file as well, compared with its name when read."""

    position: int
    format_version: int
    entry: LogEntry


class _Version(msgspec.Struct, frozen=True):
    format_version: int


def entry_path(position: int) -> str:
    return f"{LOG_FOLDER}/{position:010d}.json"


def encode_entry(position: int, entry: LogEntry) -> bytes:
    return encode_checked(msgspec.json.encode(LogRecord(position, MANIFEST_VERSION, entry)))


def encode_checked(content: bytes) -> bytes:
    """A JSON object with a checksum of all before it as its last member."""
    body = content[:-1]
    return body + _CHECKSUM % isal_zlib.crc32(body)


def decode_checked(content: bytes, kind: type[T], path: str) -> T:
    """What `encode_checked` was given. Raises CorruptCheckpointError with the path and what is wrong."""
    body = content[:-_CHECKSUM_BYTES]
    if not content.endswith(_CHECKSUM % isal_zlib.crc32(body)):
        raise CorruptCheckpointError(f"{path} was altered: its checksum does not fit")
    return _decode(body + b"}", kind, path)


def decode_entry(content: bytes, position: int, path: str) -> LogEntry:
    """Strictly. Raises CorruptCheckpointError with the path and what is wrong; UsageError if a newer
    onceflow wrote it."""
    is_checked = has_checksum(content)
    decode = decode_checked if is_checked else _decode
    version = decode(content, _Version, path).format_version
    if is_checked is not (version >= _CHECKED_FROM_VERSION):
        raise CorruptCheckpointError(f"{path} was altered: its checksum is not where it was")
    check_version(version, path)
    record = decode(content, LogRecord, path)
    if record.position != position:
        raise CorruptCheckpointError(
            f"{path} says that it is entry {record.position} of the log: was it moved?"
        )
    return record.entry


def has_checksum(content: bytes) -> bool:
    return _CHECKSUM_AT_THE_END.fullmatch(content[-_CHECKSUM_BYTES:]) is not None


def _decode(content: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptCheckpointError(f"{path} is no valid entry of a checkpoint log: {error}") from error


class CheckpointLog:
    """The writing end: one driver's. Not thread-safe; one thread appends."""

    def __init__(self, store: CheckpointStore, next_position: int) -> None:
        self._store = store
        self.next_position = next_position
        self._in_doubt: set[bytes] = set()
        """What may have been written at the next position, and may still turn up there."""

    def append(self, entry: LogEntry) -> int:
        """Write the next entry; its position. Call again with the same entry after Indeterminate.

        Raises Fenced (a newer attempt has taken the position), LogMoved (what was in doubt before was
        written after all: read the log again), Retryable (it was not written), Indeterminate (unknown).
        """
        position = self.next_position
        path = entry_path(position)
        content = encode_entry(position, entry)
        for remaining in reversed(range(_TRIES)):
            try:
                self._store.create(path, content)
            except AlreadyExists:
                self._check_mine(path, content)
            except Indeterminate:
                # The next try settles it: it creates the entry, or finds ours or somebody else's there.
                self._in_doubt.add(content)
                if remaining:
                    continue
                raise
            except Retryable as error:
                # This try has not written it. One before may have.
                if content not in self._in_doubt:
                    raise
                if remaining:
                    continue
                raise Indeterminate(f"an earlier try may have written {path}: {error}") from error
            self._check_newest(position, content)
            self._in_doubt.clear()
            self.next_position = position + 1
            # A crash before this line leaves an entry without a copy: the next attempt makes it.
            with contextlib.suppress(OSError):
                self._store.write_copy(copy_path(path), content)
            return position
        raise AssertionError("unreachable")

    def was_in_doubt(self, position: int, entry: LogEntry) -> bool:
        """Whether this entry, found in the log, is the one whose fate was unknown to this driver."""
        return encode_entry(position, entry) in self._in_doubt

    def _check_mine(self, path: str, content: bytes) -> None:
        """The position is taken: return if by exactly this entry, else raise."""
        try:
            found = self._store.read(path)
        except OSError as error:
            self._in_doubt.add(content)
            raise Indeterminate(f"can't read {self._store.describe(path)}: {error}") from error
        if found == content:
            return
        if found in self._in_doubt:
            self._in_doubt.clear()
            self.next_position += 1
            raise LogMoved(f"{self._store.describe(path)} was written after all: read the log again")
        raise Fenced(f"a newer attempt has written {self._store.describe(path)}")

    def _check_newest(self, position: int, content: bytes) -> None:
        """The entry is there: return if nothing is beyond it. Else this position was free only because what
        had been here was dropped, and a newer attempt owns the log."""
        try:
            is_last = is_newest(self._store, position)
        except (OSError, Retryable) as error:
            self._in_doubt.add(content)
            raise Indeterminate(f"can't list {self._store.describe(LOG_FOLDER)}: {error}") from error
        if not is_last:
            raise Fenced(f"a newer attempt goes on beyond {self._store.describe(entry_path(position))}")


def is_newest(store: CheckpointStore, position: int) -> bool:
    """Whether no entry is beyond this one. Raises OSError."""
    return max(positions(store, LOG_FOLDER), default=-1) <= position


def positions(store: CheckpointStore, folder: str) -> list[int]:
    """The positions of the entries, or of their copies. The temporary name of a create that crashed is passed
    over. Raises OSError."""
    names = (status.path[-len(entry_path(0)) :] for status in store.list(folder))
    return [int(match[1]) for match in map(_NAME.fullmatch, names) if match is not None]
