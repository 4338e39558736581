"""How much of each state a checkpoint has: keys, elements, entries, timers, rows of each side of a join."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle, TableFile
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.state.description import StateDescription, StatePart
from onceflow.runtime.state_tables.shapes import (
    BROADCAST,
    KEYS_TABLE,
    LISTS_TABLE,
    ROWS_TABLE,
    SPLIT_LIST,
    UNION_LIST,
)
from onceflow.runtime.state_tables.stream_headers import ITEM, Path, places_and_nulls

EVENT_TIMERS, PROCESSING_TIMERS = "timers", "processing_timers"
IN_SEVERAL_FILES = "increments, of which only reading tells: use --count"
_ITEMS = {
    "list": "elements",
    "map": "entries",
    BROADCAST: "entries",
    SPLIT_LIST: "elements",
    UNION_LIST: "elements",
}
_OF_THEIR_OWN = ("value", "rows", *_ITEMS)


@dataclass(frozen=True, slots=True)
class PartCount:
    """How much there is of one declared state, aggregate, or side of a join. None: it is not known, or there
    is no such number."""

    name: str
    kind: str
    type: str
    rows: int | None = None
    """How many keys have something in a state by key; how many rows there are of all others."""
    items: int | None = None
    """The elements of all lists, or the entries of all maps."""

    @property
    def count(self) -> int | None:
        """The number that says most: of lists and maps what is in them, else rows."""
        return self.rows if self.items is None else self.items

    @property
    def is_of_its_own(self) -> bool:
        """Whether it has a number of its own. Aggregates have that of their table's rows."""
        return self.kind in _OF_THEIR_OWN

    @property
    def text(self) -> str:
        """The numbers in words: `3 keys, 7 entries`."""
        if self.count is None:
            return "not counted"
        if (what := _ITEMS.get(self.kind)) is not None:
            keys = f"{self.rows:,} keys, " if self.kind in ("list", "map") else ""
            return f"{keys}{self.items:,} {what}"
        return f"{self.rows:,} {'keys' if self.kind == 'value' else 'rows'}"


@dataclass(frozen=True, slots=True)
class OperatorCounts:
    """How much there is of each state of one operator."""

    uid: str
    table: str
    parts: Sequence[PartCount]
    event_timers: int | None = None
    """None: the operator's table has none, or it is not known."""
    processing_timers: int | None = None
    not_counted: str = ""
    """Why numbers are missing; empty: none is."""

    @property
    def by_name(self) -> dict[str, int]:
        """One number for each state that has one of its own, and for timers."""
        found = {
            part.name: part.count for part in self.parts if part.is_of_its_own and part.count is not None
        }
        if self.event_timers is not None:
            found["timers (event time)"] = self.event_timers
        if self.processing_timers is not None:
            found["timers (processing time)"] = self.processing_timers
        return found


def counted(
    store: CheckpointStore, manifest: CheckpointManifest, is_read: bool = False
) -> list[OperatorCounts]:
    """The counts of each operator that is described, by uid. `store`: where the manifest's files are.

    They come from the manifest and from the headers of the state files. Headers don't tell what a table has
    that is in several files, whose rows take the place of each other: with `is_read` such a table is read.
    """
    return [
        _of_operator(store, manifest, uid, described, is_read)
        for uid, described in sorted(manifest.operators.items())
    ]


def _of_operator(
    store: CheckpointStore, manifest: CheckpointManifest, uid: str, described: StateDescription, is_read: bool
) -> OperatorCounts:
    handles = [handle for handle in manifest.states if handle.uid == uid]
    rows = sum(handle.rows.get(described.table, 0) for handle in handles)
    parts = [PartCount(part.name, part.kind, part.type, rows) for part in described.parts]
    counts, has_timers = OperatorCounts(uid, described.table, parts), described.table == KEYS_TABLE
    paths = {part.name: _path(described, part) for part in described.parts}
    wanted = [path for path in paths.values() if path] + [(EVENT_TIMERS,), (PROCESSING_TIMERS,)]
    has_trigger = described.windows is not None and described.windows.trigger
    if not (has_timers or has_trigger or any(paths.values())):
        return counts
    try:
        found = _sums(store, manifest, handles, described.table, wanted, is_read)
    except CorruptCheckpointError as error:
        found, problem = None, str(error)
    else:
        problem = "" if found is not None else IN_SEVERAL_FILES
    counted_parts = [
        _counted_part(part, handles, paths[part.name], given, found)
        for part, given in zip(described.parts, parts, strict=True)
    ]
    if found is None:
        is_missing = has_timers or any(part.rows is None for part in counted_parts)
        return replace(counts, parts=counted_parts, not_counted=problem if is_missing else "")
    event, processing = (
        found[(name, ITEM)][0] if has_timers or (name,) in found else None
        for name in (EVENT_TIMERS, PROCESSING_TIMERS)
    )
    return OperatorCounts(uid, described.table, counted_parts, event, processing)


def _path(described: StateDescription, part: StatePart) -> Path | None:
    """Where a part with numbers of its own is in the table; None: each row of the table has it."""
    if part.kind == BROADCAST:
        return None
    if described.table in (KEYS_TABLE, LISTS_TABLE):
        return ("state", part.name)
    return (part.name,) if described.table == ROWS_TABLE and part.kind == "rows" else None


def _counted_part(
    part: StatePart,
    handles: Sequence[StateHandle],
    path: Path | None,
    given: PartCount,
    found: Mapping[Path, tuple[int, int]] | None,
) -> PartCount:
    if part.kind == BROADCAST:
        return replace(given, rows=None, items=_broadcast_entries(handles, part.name))
    if path is None:
        return given
    if found is None:
        return replace(given, rows=None)
    places, nulls = found[path]
    return replace(given, rows=places - nulls, items=found[(*path, ITEM)][0] if part.kind in _ITEMS else None)


def _broadcast_entries(handles: Sequence[StateHandle], name: str) -> int:
    for handle in handles:  # all subtasks have the same
        copies = handle.meta.get("broadcast")
        if isinstance(copies, dict) and name in copies:
            (batch,) = pa.ipc.open_stream(base64.b64decode(str(copies[name])))
            return len(pc.list_flatten(batch.column(0)))
    return 0


def _sums(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    handles: Sequence[StateHandle],
    table: str,
    wanted: Sequence[Path],
    is_read: bool,
) -> Mapping[Path, tuple[int, int]] | None:
    """Places and nulls of each path over all subtasks, and of what its lists hold; None: headers don't tell.
    A path that no file has is missing in the keys, and has no places."""
    sums: dict[Path, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for handle in handles:
        files = handle.files.get(table, [])
        if not files:
            continue
        if _is_whole(files):
            found = places_and_nulls(store, files[0])
        elif is_read:
            found = _read(StateFiles(store, manifest.attempt), handle, table, wanted)
        else:
            return None
        for path in (each for given in wanted for each in (given, (*given, ITEM))):
            if path in found:
                sums[path] = sums[path][0] + found[path][0], sums[path][1] + found[path][1]
    return sums


def _is_whole(files: Sequence[TableFile]) -> bool:
    """Whether all rows of one file count, and no others."""
    return len(files) == 1 and not files[0].is_removal and files[0].table_rows in (None, files[0].rows)


def _read(
    files: StateFiles, handle: StateHandle, table: str, wanted: Sequence[Path]
) -> Mapping[Path, tuple[int, int]]:
    """Places and nulls, from the rows."""
    sums: dict[Path, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for batch in files.read(handle, handle.key_groups).batches(table):
        for path in wanted:
            if (column := _column(batch, path)) is None:
                continue
            sums[path] = sums[path][0] + len(column), sums[path][1] + column.null_count
            if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
                item = (*path, ITEM)
                sums[item] = sums[item][0] + len(pc.list_flatten(column)), 0
    return sums


def _column(batch: pa.RecordBatch, path: Path) -> pa.Array | None:
    if path[0] not in batch.schema.names:
        return None
    column = batch.column(path[0])
    for name in path[1:]:
        if column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, name)
    return column
