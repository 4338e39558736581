"""RocksGroups: keys in RocksDB, each with all its rows as one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import msgspec
import numpy as np
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.records import Indices, UInt64s
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.grouped_table import KeyedGroups, peeked_rows
from onceflow.runtime.state.heap.memory_share import MemoryShare
from onceflow.runtime.state.overflow import Wakes
from onceflow.runtime.state.rocks.database import WRITE_ROWS, Database
from onceflow.runtime.state.rocks.rocks_units import RocksUnits
from onceflow.runtime.state.rocks.row_ids import Identities
from onceflow.runtime.state.table import LiveRows

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[bytes])


class RocksGroups(RocksUnits):
    """GroupedOverflow; a unit is a key that has rows. A key that has lost its last one stays in memory until
    keys are renumbered, and RocksDB may have rows of it until then."""

    split = staticmethod(_DECODER.decode)

    def __init__(
        self,
        table: KeyedGroups,
        columns: Sequence[str],
        share: MemoryShare,
        database: Database,
        rows_min: int,
    ) -> None:
        super().__init__(table, columns, share, database, rows_min)
        self._table = table

    def find_keys(self, batch: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        if self._units:
            self._bring(self._table.identities_of(batch, key_hash))
        numbers = self._table.find_keys(batch, key_hash)
        self._use(numbers)
        return numbers

    def load(self, batch: pa.RecordBatch) -> Indices:
        if self._units:
            self._bring(self._table.identities_in(batch))
        numbers = self._table.load_keys(batch)
        self._use(numbers)
        return numbers

    def compact(self) -> Indices | None:
        identities, kept = self._table.identities, self._table.compact()
        if kept is not None:
            self._renumbered(identities)
        return kept

    def make_room(self, going: Indices, wakes: Wakes) -> Indices:
        identities = self._table.identities
        self._write(going, self._table.row_counts()[going])
        for kind, times in wakes.items():
            self._put_wakes(kind, going, times)
        self._stored()[going] = 0  # they are RocksDB's alone now
        self._table.let_go(going)
        kept = self._table.renumber()
        self._renumbered(identities)
        return kept

    def wake(self, kind: int, until_ms: int, keys_max: int) -> int:
        return self._wake(kind, until_ms, keys_max)[1]

    def _renumbered(self, identities: Identities) -> None:
        """Keys may have other numbers now; they had these identities. Those that are gone had no rows."""
        if (kept := self._table.kept_keys) is None:
            return
        is_gone = self._stored_rows.used()[: len(identities)] > 0
        is_gone[kept] = False
        self._forget(np.flatnonzero(is_gone), identities)
        self._keep(kept)

    def _peek(self, asked: AskedKeys, max_parallelism: int) -> pa.RecordBatch:
        return peeked_rows(self._table, asked, max_parallelism)

    def _note_gone(self) -> None:
        self._table.note_gone()

    # --- A unit is a key ---

    @property
    def _size(self) -> int:
        return self._table.key_count

    def _live_units(self) -> LiveRows:
        return self._table.live_keys()

    def _rows_of(self, units: LiveRows) -> LiveRows:
        return self._table.rows_of_live(units)

    def _load(self, contents: Sequence[bytes]) -> tuple[Indices, Indices]:
        assert self.split is not None, "a unit of several rows"
        rows = list(chain.from_iterable(map(self.split, contents)))
        numbers = self._table.load_keys(pa.RecordBatch.from_pydict(self._codec.decode(rows)))
        return np.unique(numbers, return_counts=True)

    def _contents(self, units: Indices) -> Iterator[list[bytes]]:
        rows = np.sort(self._table.rows_of_keys(units))
        encoded = list(chain.from_iterable(self._encoded(rows)))
        keys = self._table.key_numbers(rows)
        by_key = stable_order(keys)
        ends = np.searchsorted(keys[by_key], units, side="right").tolist()
        begins, in_order = [0, *ends][: len(ends)], by_key.tolist()
        bundles = (
            _ENCODER.encode([encoded[n] for n in in_order[begin:end]])
            for begin, end in zip(begins, ends, strict=True)
        )
        while piece := list(islice(bundles, WRITE_ROWS)):
            yield piece
