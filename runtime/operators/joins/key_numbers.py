"""KeyNumbers: a number for each key that has rows on either side of a join."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.two_keys import joint_keys, keys_of
from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state.tables import Layout, keyed_table

_KEYS_MIN = 1 << 10


class KeyNumbers:
    """Numbers are given as keys come, and given anew when `forget` says so."""

    def __init__(self, keys: Sequence[Sequence[str]], schemas: Sequence[pa.Schema]) -> None:
        self._keys = keys
        fields = [[s.field(name) for name in names] for names, s in zip(keys, schemas, strict=True)]
        self._schema = joint_keys(*fields)
        self._table = keyed_table(Layout(self._schema.names, self._schema, {}))
        self._looked_from = _KEYS_MIN
        """How many keys there may be before it is looked which of them have rows."""

    def __len__(self) -> int:
        return self._table.size

    def of(self, side: int, batch: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        """The number of the key of each row of a side."""
        return self._table.find_or_add(keys_of(batch, self._keys[side], self._schema), key_hash)

    def forget(self, used: Iterable[Int64s]) -> Indices | None:
        """Let go of keys without rows, when they are at least half. `used`: the numbers that rows have.
        Returns the old numbers of those that are kept, lowest first; None: all are as they were."""
        if self._table.size < self._looked_from:
            return None
        is_used = np.zeros(self._table.size, np.bool_)
        for numbers in used:
            is_used[numbers] = True
        live = int(np.count_nonzero(is_used))
        self._looked_from = max(_KEYS_MIN, 2 * live)
        if 2 * live > self._table.size:
            return None
        self._table.remove(np.flatnonzero(~is_used))
        kept = self._table.compact()
        assert kept is not None, "half of the keys were removed"
        return kept
