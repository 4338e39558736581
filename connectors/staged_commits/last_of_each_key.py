"""The last row of each key among the rows of a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.runtime.records import RowKind

COMPACT_BYTES = 64 << 20
"""How much is added before what is not the last row of its key is dropped."""


class LastOfEachKey:
    """The rows of which those stay that are the last of their key: memory for these, and a little more.

    `batches`: these rows, in their order. `nulls`: each batch of rows with a null in their key, which no
    later row would replace."""

    def __init__(
        self, key: Sequence[str], batches: Iterable[pa.RecordBatch], compact_bytes: int = COMPACT_BYTES
    ) -> None:
        self._key = list(key)
        self.batches: list[pa.RecordBatch] = []
        self.nulls: list[pa.RecordBatch] = []
        added = kept = 0
        for batch in batches:
            self.batches.append(self._without_nulls(batch))
            added += batch.nbytes
            if added > max(compact_bytes, kept):
                self._compact()
                added, kept = 0, sum(each.nbytes for each in self.batches)
        self._compact()

    def _without_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        has_null = np.zeros(len(batch), bool)
        for name in self._key:
            if batch.column(name).null_count:
                has_null |= batch.column(name).is_null().to_numpy(zero_copy_only=False)
        if not has_null.any():
            return batch
        self.nulls.append(batch.filter(pa.array(has_null)))
        return batch.filter(pa.array(~has_null))

    def _compact(self) -> None:
        is_last = self._is_last()
        kept, first = [], 0
        for batch in self.batches:
            mask = is_last[first : first + len(batch)]
            first += len(batch)
            kept.append(batch if mask.all() else batch.filter(pa.array(mask)))
        self.batches = [batch for batch in kept if len(batch)]

    def _is_last(self) -> npt.NDArray[np.bool_]:
        """Whether each row is the last of its key."""
        batches = [batch.select(self._key) for batch in self.batches]
        is_last = np.zeros(sum(map(len, batches)), bool)
        if len(is_last):
            names = [f"key {n}" for n in range(len(self._key))]
            table = pa.Table.from_batches(batches).rename_columns(names)
            table = table.append_column("row", pa.array(np.arange(len(is_last))))
            last = table.group_by(names, use_threads=False).aggregate([("row", "max")])
            is_last[last.column("row_max").to_numpy()] = True
        return is_last


def is_gone(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Whether each row is to be deleted. A row that says what was before counts as a delete: if its key
    stays, what it is now comes behind it."""
    kinds = batch.column(KIND).to_numpy()
    gone: npt.NDArray[np.bool_] = (kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE)
    return gone
