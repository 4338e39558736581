"""SentResults: what a window has sent last, so that it can be taken back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.windows.row_copies import RowCopies
from onceflow.runtime.records import Indices, Int64s, Mask

_PLACE = [pa.field(f"(sent {name})", pa.int64(), nullable=False) for name in ("start", "end", "event time")]


class SentResults:
    """A RowColumn: the last result of each window, the bounds that the window had then, and the result's
    event time. Nothing is there if nothing was sent, or if it was purged: then it stays sent for good."""

    def __init__(self, output: pa.Schema) -> None:
        self._output = output
        self._schema = pa.schema([*_PLACE, *output])
        self._copies = copies = RowCopies(self._schema)
        self.has, self.load = copies.has, copies.load
        self.grow, self.clear, self.keep, self.freeze = copies.grow, copies.clear, copies.keep, copies.freeze

    def put(self, rows: Indices, results: pa.RecordBatch, *place_of_each: Int64s) -> None:
        """These were sent, with these starts, ends and event times."""
        place = [pa.array(numbers) for numbers in place_of_each]
        kept = pa.RecordBatch.from_arrays([*place, *results.columns], schema=self._schema)
        self._copies.put(rows, kept)

    def has_bounds(self, rows: Indices, starts: Int64s, ends: Int64s) -> Mask:
        """Whether each was sent with these bounds."""
        is_same = self.has(rows)
        place = self._copies.take_column(0, rows[is_same]), self._copies.take_column(1, rows[is_same])
        bounds = [column.to_numpy() for column in place]
        is_same[is_same] = (bounds[0] == starts[is_same]) & (bounds[1] == ends[is_same])
        return np.asarray(is_same)

    def take(self, rows: Indices) -> tuple[pa.RecordBatch, Int64s]:
        """What was sent for these windows, each of which has sent something, and its event times."""
        kept = self._copies.take(rows)
        results = pa.RecordBatch.from_arrays(kept.columns[len(_PLACE) :], schema=self._output)
        return results, kept.column(2).to_numpy()
