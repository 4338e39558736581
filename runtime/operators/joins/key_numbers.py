"""KeyNumbers: a number for each key that has rows on either side of a join."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.two_keys import joint_keys, keys_of
from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state.tables import Layout, identified_table

_KEYS_MIN = 1 << 10


class KeyNumbers:
    """Numbers are given as keys come, and given anew when `forget` says so."""

    def __init__(self, keys: Sequence[Sequence[str]], schemas: Sequence[pa.Schema]) -> None:
        self._keys = keys
        fields = [[s.field(name) for name in names] for names, s in zip(keys, schemas, strict=True)]
        self.schema = joint_keys(*fields)
        """What keys are in the state."""
        self.table = identified_table(Layout(self.schema.names, self.schema, {}))
        self._looked_from = _KEYS_MIN
        """How many keys there may be before it is looked which of them have rows."""

    def __len__(self) -> int:
        return self.table.size

    def of(self, side: int, batch: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        """The number of the key of each row of a side."""
        return self.table.find_or_add(self.columns(side, batch), key_hash)

    def columns(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The key columns of rows of a side, as the state has them."""
        return keys_of(batch, self._keys[side], self.schema)

    def forget(self, used: Iterable[Int64s], is_asked: bool = False) -> Indices | None:
        """Let go of keys without rows, when they are at least half, or if it `is_asked`. `used`: the numbers
        that rows have. Returns the old numbers of those that are kept, lowest first; None: all are as they
        were."""
        if self.table.size < self._looked_from and not is_asked:
            return None
        is_used = np.zeros(self.table.size, np.bool_)
        for numbers in used:
            is_used[numbers] = True
        live = int(np.count_nonzero(is_used))
        self._looked_from = max(_KEYS_MIN, 2 * live)
        if 2 * live > self.table.size and not is_asked:
            return None
        self.table.remove(np.flatnonzero(~is_used))
        return self.table.renumber()
