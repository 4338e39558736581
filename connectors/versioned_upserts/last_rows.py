"""The last row of each key in a checkpoint: two rows of one key have one version, and a store that has no
transactions could mix them, or keep the earlier one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.connectors.versioned_upserts.backend import Piece
from onceflow.connectors.versioned_upserts.keys import key_texts
from onceflow.runtime.records import RowKind

COMPACT_BYTES = 64 << 20
"""How much is added before what is not the last row of its key is dropped."""

PIECE_BYTES = 4 << 20
"""How much of small batches is joined to one."""


class LastRows:
    """The rows of a checkpoint, of which those stay that are the last of their key: memory for these, and a
    little more. A row that says what was before counts as a delete: if its key stays, what it is now comes
    behind it."""

    def __init__(
        self, key: Sequence[str], batches: Iterable[pa.RecordBatch], compact_bytes: int = COMPACT_BYTES
    ) -> None:
        self._key = list(key)
        self._batches: list[pa.RecordBatch] = []
        self._nulls: list[pa.RecordBatch] = []
        added = kept = 0
        for batch in batches:
            self._batches.append(self._without_nulls(batch))
            added += batch.nbytes
            if added > max(compact_bytes, kept):
                self._compact()
                added, kept = 0, sum(each.nbytes for each in self._batches)
        self._compact()

    def pieces(self) -> Iterator[Piece]:
        """The rows, many at a time: a slow stream comes in batches of a few, and a request for each of these
        would take longer than the stream."""
        for batch in _joined(self._batches):
            keys = [text for text in key_texts(batch, self._key) if text is not None]
            yield Piece(keys, _is_gone(batch), _columns(batch))

    def without_key(self) -> Iterator[Piece]:
        """Each row with a null in its key, which no later row would replace; its text is its number among
        these rows."""
        number = 0
        for batch in self._nulls:
            for row in range(len(batch)):
                one = batch.slice(row, 1)
                yield Piece([f"null ({number})"], _is_gone(one), _columns(one))
                number += 1

    def _without_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        has_null = np.zeros(len(batch), bool)
        for name in self._key:
            if batch.column(name).null_count:
                has_null |= batch.column(name).is_null().to_numpy(zero_copy_only=False)
        if not has_null.any():
            return batch
        self._nulls.append(batch.filter(pa.array(has_null)))
        return batch.filter(pa.array(~has_null))

    def _compact(self) -> None:
        is_last = self._is_last()
        kept, first = [], 0
        for batch in self._batches:
            mask = is_last[first : first + len(batch)]
            first += len(batch)
            kept.append(batch if mask.all() else batch.filter(pa.array(mask)))
        self._batches = [batch for batch in kept if len(batch)]

    def _is_last(self) -> npt.NDArray[np.bool_]:
        """Whether each row is the last of its key."""
        batches = [batch.select(self._key) for batch in self._batches]
        is_last = np.zeros(sum(map(len, batches)), bool)
        if len(is_last):
            names = [f"key {n}" for n in range(len(self._key))]
            table = pa.Table.from_batches(batches).rename_columns(names)
            table = table.append_column("row", pa.array(np.arange(len(is_last))))
            last = table.group_by(names, use_threads=False).aggregate([("row", "max")])
            is_last[last.column("row_max").to_numpy()] = True
        return is_last


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in as few batches as PIECE_BYTES allows."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= PIECE_BYTES:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def _is_gone(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    kinds = batch.column(KIND).to_numpy()
    gone: npt.NDArray[np.bool_] = (kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE)
    return gone


def _columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name != KIND])
