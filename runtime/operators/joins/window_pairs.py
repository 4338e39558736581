"""WindowPairs: the rows of a window join, made of both sides of windows that have ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.joins.joined_columns import (
    LEFT,
    RIGHT,
    Gatherer,
    JoinedColumns,
    null_keys,
)
from onceflow.runtime.operators.joins.runs import PAIRS_MAX, pairs
from onceflow.runtime.operators.joins.window_sides import EndedWindows, equal_rows
from onceflow.runtime.records import Int64s
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.rows import take_rows

WINDOW_FIELDS = (
    pa.field("window_start", pa.int64(), nullable=False),
    pa.field("window_end", pa.int64(), nullable=False),
)


def with_bounds(batch: pa.RecordBatch, starts: Int64s, ends: Int64s) -> pa.RecordBatch:
    """These rows with the bounds of the window of each."""
    schema = pa.schema([*batch.schema, *WINDOW_FIELDS])
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(starts), pa.array(ends)], schema=schema)


class WindowPairs:
    """Pairs of rows in columns and, where the join says so, rows that have no partner."""

    def __init__(
        self,
        columns: JoinedColumns,
        passes: Mapping[str, tuple[int, str]],
        schemas: tuple[pa.Schema, pa.Schema],
        condition: pl.Expr | None,
    ) -> None:
        self._keys, self._padded = columns.keys, columns.padded
        self._gatherer = Gatherer(columns, passes, schemas, condition)

    def of(self, ended: EndedWindows) -> Iterator[tuple[pa.RecordBatch, Int64s]]:
        """The rows, in batches, and for each what `ended.starts` says of its window."""
        begin, counts = equal_rows(ended)
        no_key = null_keys(ended.batches[LEFT], self._keys[LEFT])
        if no_key is not None:
            counts[no_key[ended.by_key[LEFT]]] = 0
        is_mixed = bool(self._padded) and len(ended.windows) > 1
        if is_mixed and int(counts.sum()) > PAIRS_MAX:  # so many are sent as they are made
            for window in ended.apart():
                yield from self.of(window)
            return
        made = self._made(ended, begin, counts)
        if not is_mixed:
            yield from made
        elif parts := list(made):  # what has no partner goes behind the pairs of its window
            starts = np.concatenate([its for _, its in parts])
            order = stable_order(starts)
            batch = one_batch(pa.Table.from_batches([its for its, _ in parts]))
            yield take_rows(batch, order), starts[order]

    def _made(
        self, ended: EndedWindows, begin: Int64s, counts: Int64s
    ) -> Iterator[tuple[pa.RecordBatch, Int64s]]:
        """The pairs, and the rows that have no partner."""
        matched = [np.zeros(batch.num_rows, np.bool_) for batch in ended.batches]
        for asked, found in pairs(begin, counts):
            rows = [ended.by_key[LEFT][asked], ended.by_key[RIGHT][found]]
            holds = self._gatherer.holds(ended.batches, rows)
            if holds is not None:
                rows = [its[holds] for its in rows]
            if not len(rows[LEFT]):
                continue
            for side in self._padded:
                matched[side][rows[side]] = True
            yield self._gatherer.pairs(ended.batches, rows), ended.starts[LEFT][rows[LEFT]]
        for side in self._padded:
            alone = np.flatnonzero(~matched[side])
            if len(alone):
                batch = take_rows(ended.batches[side], alone)
                yield self._gatherer.alone(side, batch), ended.starts[side][alone]
