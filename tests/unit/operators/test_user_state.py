"""UserColumn: what was frozen comes in pieces, whatever the user's code changes in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.operators.user_state import UserColumn, declared_type
from onceflow.runtime.state.table import LiveRows
from onceflow.runtime.types.record_types import describe_type


@pytest.mark.parametrize(
    ("python_type", "arrow", "values"),
    [(int, pa.int64(), [10, 11, 12, 13]), (list[int], pa.list_(pa.int64()), [[0], [1], [2], [3]])],
)
def test_pieces_of_what_was_frozen_are_the_values_of_their_slots(
    python_type: Any, arrow: pa.DataType, values: list[Any]
) -> None:
    column = UserColumn(declared_type(describe_type(python_type, "x"), pa.field("x", arrow), "x"))
    column.grow(6)
    column.values[1:5] = values
    before = {slot: pa.scalar(value, arrow).as_py() for slot, value in enumerate(values, start=1)}
    live = np.array([1, 3, 4])
    frozen = column.freeze(LiveRows(5, live))
    if python_type is not int:
        column.values[3].append(99)
    for piece in ([1], [3, 4], [1, 3, 4], []):
        assert frozen(np.array(piece, np.int64)).to_pylist() == [before[slot] for slot in piece]
