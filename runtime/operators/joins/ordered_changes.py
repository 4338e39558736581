"""OrderedChanges: what a join sends for the rows of a batch, in the order of the rows that caused it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, Records, RowKind
from onceflow.runtime.state.columns import one_batch


class OrderedChanges:
    """Takes changes as they are found, many rows at a time, and sends them as if the rows of the batch had
    come one by one. What one row causes stays in the order in which it was added."""

    def __init__(self, emit: Callable[[Records], None], sends_at_once: bool) -> None:
        """`sends_at_once`: whether all is sent as it is added: there is one cause, or no order to keep."""
        self._emit = emit
        self._sends_at_once = sends_at_once
        self._parts: list[tuple[Indices, pa.RecordBatch, npt.NDArray[np.int8], Int64s | None]] = []

    def add(self, cause: Indices, batch: pa.RecordBatch, kind: RowKind, time: Int64s | None) -> None:
        """Rows of the output that are all of one kind, each with the number of the row that causes it."""
        kinds = np.full(len(cause), kind, np.int8)
        if self._sends_at_once:
            self._emit(Records(batch, time, kind=kinds if kind else None))
        else:
            self._parts.append((cause, batch, kinds, time))

    def send(self) -> None:
        """Send what was added and is not sent yet."""
        if not self._parts:
            return
        causes, batches, kinds, times = zip(*self._parts, strict=True)
        self._parts = []
        order = np.argsort(np.concatenate(causes), kind="stable")
        batch = one_batch(pa.Table.from_batches(batches)).take(pa.array(order))
        kind = np.concatenate(kinds)[order]
        time = None if times[0] is None else np.concatenate(times)[order]
        self._emit(Records(batch, time, kind=kind if kind.any() else None))
