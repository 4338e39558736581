"""FrozenRows: the rows of a snapshot's table, in columns that are made piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.key_index import LiveSlots
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state.values import Frozen


class TableRows:
    """Rows that are in a table, or are made all at once when they are first asked for."""

    def __init__(self, make: Callable[[], pa.Table]) -> None:
        self._make = make

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        return self._batch.slice(first, end - first)

    @cached_property
    def _batch(self) -> pa.RecordBatch:
        return one_batch(self._make())


class FrozenKeys(Protocol):
    """Keys by slot as they were at a barrier."""

    @property
    def live(self) -> LiveSlots:
        """The slots in use."""
        ...

    def keys(self, slots: Indices) -> pa.RecordBatch: ...

    def key_groups(self, slots: Indices, max_parallelism: int) -> npt.NDArray[np.uint16]: ...


class KeyedRows:
    """A row for each live slot. Columns: key_group, key (struct), the window's start if there are windows,
    value: names of users never meet ours."""

    def __init__(
        self, keys: FrozenKeys, values: Frozen, max_parallelism: int, starts: dict[str, Int64s] | None = None
    ) -> None:
        """`starts` is by slot, under the column's name. `values` gives those of some live slots."""
        self._keys = keys
        self._values = values
        self._max_parallelism = max_parallelism
        self._starts = starts or {}

    def __len__(self) -> int:
        return len(self._keys.live)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        slots = self._keys.live.piece(first, end)
        columns = {
            KEY_GROUP_COLUMN: pa.array(self._keys.key_groups(slots, self._max_parallelism)),
            "key": self._keys.keys(slots).to_struct_array(),
            **{name: pa.array(starts[slots]) for name, starts in self._starts.items()},
            "value": self._values(slots),
        }
        return pa.RecordBatch.from_pydict(columns)
