"""Tables in several files: which of them are needed, and what is read from them.

Pure but for the reading itself. What the files are is said in `manifest.TableFile`, why there are several in
`state/increments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.checkpoint.manifest import EVERYTHING, TableFile
from onceflow.runtime.records import Mask, UInt64s
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys, with_start
from onceflow.runtime.state.increments import CHECK, HASH, FrozenIncrement, Slice
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.tables import SeenRows

Read = Callable[[TableFile], Iterator[pa.RecordBatch]]


class Chains:
    """Which files the tables of one attempt's operators are in, by snapshot. One thread."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, int, str], dict[int, tuple[TableFile, ...]]] = {}
        """The files by uid, subtask and table, and by the snapshot's number."""

    def base(self, table: tuple[str, int, str], rows: FrozenRows) -> Sequence[TableFile]:
        """The files on which a table's snapshot builds."""
        if not isinstance(rows, FrozenIncrement) or rows.increment.is_whole:
            return ()
        return self._files[table][rows.increment.base]

    def extended(
        self, table: tuple[str, int, str], rows: FrozenRows, new: Sequence[TableFile]
    ) -> Sequence[TableFile]:
        """The files of a table whose snapshot was written to these new ones, oldest first. `table`: uid,
        subtask and name."""
        if not isinstance(rows, FrozenIncrement):
            return new
        increment, chain = rows.increment, self._files.setdefault(table, {})
        files = needed([*self.base(table, rows), *new])
        for number in [n for n in chain if n < increment.base]:
            del chain[number]
        chain[increment.number] = files
        return files


def needed(files: Sequence[TableFile]) -> tuple[TableFile, ...]:
    """The files of a table, oldest first, without those that are needed no more: all rows in them are covered
    by newer ones."""
    covered = Covered()
    for place in range(len(files) - 1, -1, -1):
        if not files[place].is_removal:
            covered.add(files[place].covers)
        if covered.is_everything:
            return tuple(files[place:])
    return tuple(files)


def merged(files: Sequence[TableFile], read: Read) -> Iterator[pa.RecordBatch]:
    """The rows of a table, in pieces, none of them empty: each as the newest file has it. Both hashes of the
    rows in all files but the oldest, without those that the files cover, are in memory meanwhile.

    Where rows are found by their key alone, any number of them may have it: all that the newest file has."""
    newer, covered = SeenRows(), Covered()
    for place in range(len(files) - 1, -1, -1):
        file, is_oldest = files[place], place == 0
        of_file: list[tuple[UInt64s, UInt64s]] = []
        for batch in read(file):
            identities = _removed(batch) if file.is_removal else _identities(batch, file.start_column)
            if file.is_removal:
                newer.add(*identities)
                continue
            kept = _newest(identities, newer, covered)
            if not is_oldest:
                single = kept & ~Slice(*file.covers).holds(identities[0])
                of_file.append((identities[0][single], identities[1][single]))
            if kept.all():
                yield batch
            elif kept.any():
                yield batch.filter(pa.array(kept))
        # Not before: a key may have rows in two batches.
        for hashes, checks in of_file:
            newer.add(hashes, checks)
        if not file.is_removal:
            covered.add(file.covers)


def _newest(identities: tuple[UInt64s, UInt64s], newer: SeenRows, covered: Covered) -> Mask:
    """Which of these rows are in no newer file."""
    hashes, checks = identities
    kept = ~covered.hold(hashes)
    return kept & ~newer.have(hashes, checks) if len(newer) else kept


class Covered:
    """Ranges of hashes, put together."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        """Ranges of hashes, each from its first to its last; in order, apart from each other."""

    def add(self, covers: tuple[int, int]) -> None:
        ranges: list[tuple[int, int]] = []
        for first, last in sorted([*self._ranges, covers]):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
        self._ranges = ranges

    @property
    def is_everything(self) -> bool:
        return self._ranges == [EVERYTHING]

    def hold(self, hashes: UInt64s) -> Mask:
        found = np.zeros(len(hashes), np.bool_)
        for one in self._ranges:
            found |= Slice(*one).holds(hashes)
        return found


def _identities(batch: pa.RecordBatch, start_column: str) -> tuple[UInt64s, UInt64s]:
    """Both hashes of each row, as the table has them."""
    keys = pa.RecordBatch.from_struct_array(batch.column("key"))
    names = keys.schema.names
    hashes = hash_keys(keys, names)
    if start_column:
        hashes = with_start(hashes, batch.column(start_column).to_numpy())
    return hashes, hash_keys(keys, names, CHECK_SEED)


def _removed(batch: pa.RecordBatch) -> tuple[UInt64s, UInt64s]:
    return np.array(batch.column(HASH)), np.array(batch.column(CHECK))
