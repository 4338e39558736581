"""Rows of a table in memory, found by their keys: columns and two arrays of hashes, no object per row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import Int64s, UInt64s
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys
from onceflow.runtime.state_tables.chosen_keys import ChosenKeys

_GROUPS = 128
"""Which key groups the keys are in is not asked here."""


class IndexedRows:
    """All rows of a table, sorted by the hash of their keys. It never changes, so any thread may ask it."""

    def __init__(self, rows: pa.Table, key_columns: pa.Schema, where: str) -> None:
        """`key_columns`: at least one, columns of `rows`. `where`: the table, as errors call it."""
        self.key_columns = key_columns
        self._where = where
        names = key_columns.names
        batches = [batch for batch in rows.select(names).to_batches() if batch.num_rows]
        hashes = _hashes(batches, names, 0)
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._checks = _hashes(batches, names, CHECK_SEED)[order]
        self._order = order
        # Of many chunks each `take` would look at all, for milliseconds.
        self._rows = rows.combine_chunks()

    @property
    def num_rows(self) -> int:
        return int(self._rows.num_rows)

    def find(self, keys: Iterable[Any]) -> tuple[Int64s, pa.Table]:
        """The rows of these keys, and for each row the position of its key among them, ascending.

        A key is the value of the only key column, or a mapping with a value for each. Rows of one key are in
        the order of the table. Raises UsageError for what is not a key of these columns.
        """
        wanted = ChosenKeys(keys, self.key_columns, _GROUPS, self._where)
        begin = np.searchsorted(self._hashes, wanted.hashes, "left")
        counts = np.searchsorted(self._hashes, wanted.hashes, "right") - begin
        places = np.repeat(np.arange(len(counts)), counts)
        found = np.arange(len(places)) + np.repeat(begin - (np.cumsum(counts) - counts), counts)
        same = self._checks[found] == wanted.checks[places]
        return places[same], self._rows.take(pa.array(self._order[found[same]]))


def _hashes(batches: list[pa.RecordBatch], names: list[str], seed: int) -> UInt64s:
    parts = [hash_keys(batch, names, seed) for batch in batches]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)
