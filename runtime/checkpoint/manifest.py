"""CheckpointManifest: the durable record of a checkpoint and its version; SlotSnapshot: a slot's part.

Both are JSON: the manifest is an entry of the checkpoint log (`log.py`), a slot's part travels on the
control channel. Decoding is strict: an unknown version, a missing or mistyped field is an error that
names the file.

A slot's part of a large job comes as thousands of handles that the driver only passes on. So they are
structs and tuples without the collector's bookkeeping, and what the driver does not look at (`meta`)
stays JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from onceflow.runtime.contracts import Committable, Json, SplitProgress
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import StateDescription

MANIFEST_VERSION = 5
"""1: the rows of a state were sorted by key group. What reads them in any order reads those as well.
2: entries of the log had no checksum (`log.py`).
3: finished splits were never left out: who does not know `finished` would read them again.
4: a table was in one file: who knows no increments would take earlier rows for the table's."""
_READABLE = (1, 2, 3, 4, 5)
EVERYTHING = (0, (1 << 64) - 1)
"""All hashes."""
_NO_META = msgspec.Raw(b"{}")


def meta_as_json(meta: Mapping[str, Json]) -> msgspec.Raw:
    """An operator's notes as `StateHandle.meta_json` takes them."""
    return msgspec.Raw(msgspec.json.encode(meta))


class TableFile(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A table of an operator's state, or a part of it: an Arrow IPC stream inside a state file.

    Its first column is the key group; the rows are in no order. `rows_per_key_group` has one count for each
    key group of the handle, in order. `checksum` covers exactly the bytes [offset, offset + size).

    A table may be in several files, of several checkpoints: those of the same name, oldest first. Then a row
    takes the place of the one of the same key, and of the same value in `start_column` if there is one, in
    earlier files. `checkpoint/increments.py` reads them.
    """

    name: str
    path: str
    offset: int
    size: int
    checksum: str
    rows_per_key_group: tuple[int, ...]
    covers: tuple[int, int] = EVERYTHING
    """From the first to the last hash of the rows of which this file has all that there are: those in earlier
    files count no more. The hash is that of the key, and of the start (`state/heap/heap_table.py`)."""
    is_removal: bool = False
    """Its rows are gone, and not there; they have both their hashes, and nothing else. It covers nothing."""
    start_column: str = ""
    table_rows: int | None = None
    """How many rows the table has with this file and those before; None: as many as are in this one."""

    @property
    def rows(self) -> int:
        """How many rows are in it."""
        return sum(self.rows_per_key_group)


class StateHandle(msgspec.Struct, frozen=True, gc=False):
    """Where the state of one operator subtask is. Key groups [key_groups_start, key_groups_end)."""

    uid: str
    subtask: int
    key_groups_start: int
    key_groups_end: int
    tables: tuple[TableFile, ...] = ()
    meta_json: msgspec.Raw = msgspec.field(name="meta", default=_NO_META)
    """An object: what the operator remembers beside its tables."""

    @property
    def meta(self) -> Mapping[str, Json]:
        """Raises msgspec.ValidationError if it is no object."""
        return msgspec.json.decode(self.meta_json, type=dict[str, Json])

    @property
    def key_groups(self) -> range:
        return range(self.key_groups_start, self.key_groups_end)

    @property
    def size(self) -> int:
        return sum(table.size for table in self.tables)

    @property
    def files(self) -> Mapping[str, Sequence[TableFile]]:
        """The files of each table, by its name, oldest first."""
        files: dict[str, list[TableFile]] = {}
        for table in self.tables:
            files.setdefault(table.name, []).append(table)
        return files

    @property
    def rows(self) -> Mapping[str, int]:
        """How many rows each table has, by its name."""
        newest = {table.name: table for table in self.tables}
        return {n: file.rows if file.table_rows is None else file.table_rows for n, file in newest.items()}


class SlotSnapshot(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one slot acks: everything that its subtasks have to remember at the barrier."""

    states: tuple[StateHandle, ...] = ()
    splits: Mapping[str, Sequence[SplitProgress]] = {}
    """How far the splits were read, by the source's uid."""
    committables: tuple[Committable, ...] = ()
    alignment_ms: int = 0
    """The longest wait of a task between its first barrier and its last."""
    sync_ms: int = 0
    """The longest pause of a task for its snapshot."""
    write_ms: int = 0
    """The time from the last task's snapshot until everything was durable."""

    def paths(self) -> set[str]:
        return _paths(self.states, self.committables)

    def state_paths(self) -> frozenset[str]:
        """The state files alone: a later checkpoint may need staged output."""
        return frozenset(_paths(self.states, ()))


class AttemptEntry(NamedTuple):
    """The entry of the log with which the driver began an attempt: its path in the folder, and its bytes."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """A completed checkpoint: all that a later attempt needs to go on from it.

    It is complete because it is durable: there is no state beside its existence. `is_last`: the sources
    sent nothing after its barrier. Times are wall-clock ms. `total_bytes` counts the state files.
    """

    job: str
    lineage: str
    attempt: int
    checkpoint_id: int
    triggered_ms: int
    completed_ms: int
    parallelism: int
    max_parallelism: int
    states: Sequence[StateHandle] = ()
    splits: Mapping[str, Sequence[SplitProgress]] = field(default_factory=dict)
    """How far the splits of all subtasks were read, by the source's uid."""
    committables: Sequence[Committable] = ()
    is_last: bool = False
    total_bytes: int = 0
    operators: Mapping[str, StateDescription] = field(default_factory=dict)
    """What the states are, by the operator's uid; none in manifests of an older onceflow."""
    finished: Mapping[str, Json] = field(default_factory=dict)
    """What sources remember of finished splits that are left out of `splits` (PruningSource), by uid."""
    is_drained: bool = False
    """The input had ended in all subtasks, by itself or by `stop --drain`, so that all has fired that waited
    for event time. Who goes on from it in the same folder has only to end."""
    went_back: WentBack | None = None
    """Set once the job has gone back to an older checkpoint; the latest time, if it has more than once."""
    format_version: int = MANIFEST_VERSION

    @property
    def promised_id(self) -> int:
        """The checkpoint whose output the committables are: its own, unless it is a copy of an older one."""
        back = self.went_back
        return back.to if back is not None and back.is_begun_by(self.checkpoint_id) else self.checkpoint_id

    def sizes_by_operator(self) -> dict[str, dict[str, int]]:
        """The `rows` and `bytes` of each uid that keeps something, over its subtasks; those of rows in flight
        by the uid of their way."""
        sizes: dict[str, dict[str, int]] = {}
        for handle in self.states:
            size = sizes.setdefault(handle.uid, {"rows": 0, "bytes": 0})
            size["rows"] += sum(handle.rows.values())
            size["bytes"] += handle.size
        return {uid: size for uid, size in sizes.items() if size["bytes"]}

    def paths(self) -> set[str]:
        """The files that must live as long as this manifest."""
        return _paths(self.states, self.committables)


def _paths(states: Sequence[StateHandle], committables: Sequence[Committable]) -> set[str]:
    paths = {table.path for handle in states for table in handle.tables}
    paths.update(path for committable in committables for path in committable.paths)
    return paths


def check_version(version: int, path: str) -> None:
    """Raises UsageError if a newer onceflow wrote this."""
    if version not in _READABLE:
        raise UsageError(
            f"{path} has format version {version}; this onceflow reads up to {MANIFEST_VERSION}: "
            "use the onceflow that wrote it, or a newer one"
        )
