"""FrozenTable: a heap table's rows as they were at a barrier, in columns that are made piece by piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state.table import Frozen, LiveRows, RowColumn


class FrozenKeys(Protocol):
    """Keys by row as they were. Nothing in it changes; any thread."""

    @property
    def live(self) -> LiveRows:
        """The rows in use."""
        ...

    def keys(self, rows: Indices) -> pa.RecordBatch: ...

    def key_groups(self, rows: Indices, max_parallelism: int) -> npt.NDArray[np.uint16]: ...


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """FrozenRows with a row for each live row of the table."""

    frozen_keys: FrozenKeys
    max_parallelism: int
    numbers: Mapping[str, Int64s]
    """Numbers by row, under the name of their column."""
    columns: Mapping[str, Frozen]

    def __len__(self) -> int:
        return len(self.frozen_keys.live)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        rows = self.frozen_keys.live.piece(first, end)
        columns = {
            KEY_GROUP_COLUMN: pa.array(self.frozen_keys.key_groups(rows, self.max_parallelism)),
            "key": self.frozen_keys.keys(rows).to_struct_array(),
            **{name: pa.array(numbers[rows]) for name, numbers in self.numbers.items()},
            **{name: frozen(rows) for name, frozen in self.columns.items()},
        }
        return pa.RecordBatch.from_pydict(columns)


def frozen_columns(columns: Mapping[str, RowColumn], live: LiveRows) -> dict[str, Frozen]:
    """The columns of a table that have something in them, as they are now."""
    frozen: dict[str, Frozen] = {}
    for name, column in columns.items():
        made = column.freeze(live)
        if made is not None:
            frozen[name] = made
    return frozen
