"""Rows in the order of their partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka import partition_order
from onceflow.connectors.kafka.partition_order import in_order, sort_partitions
from onceflow.runtime.kernels.compiled import kernels_enabled
from onceflow.runtime.recycled_memory import RecycledMemory

with_and_without_kernels = pytest.mark.parametrize("kernels", [True, False] if kernels_enabled() else [False])


@with_and_without_kernels
@given(partitions=st.lists(st.sampled_from([-1, 0, 1, 2, 40_000]) | st.integers(0, 300), max_size=30))
def test_rows_by_partition_keep_their_order_within_one(kernels: bool, partitions: list[int]) -> None:
    expected = sorted(range(len(partitions)), key=partitions.__getitem__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_order, "kernels_loaded", lambda: kernels)
        order, in_it = sort_partitions(np.array(partitions, np.int32))
    assert order.tolist() == expected
    assert in_it.tolist() == sorted(partitions)
    assert in_it.dtype == np.int32


@with_and_without_kernels
@given(
    values=st.lists(st.none() | st.binary(max_size=70), min_size=1, max_size=20),
    start=st.integers(0, 5),
    arrow=st.sampled_from([pa.binary(), pa.large_binary()]),
    data=st.data(),
)
def test_values_in_another_order(
    kernels: bool, values: list[bytes | None], start: int, arrow: pa.DataType, data: st.DataObject
) -> None:
    column = pa.array(values, arrow)[start:]
    order = data.draw(st.permutations(range(len(column))))
    memory = RecycledMemory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_order, "kernels_loaded", lambda: kernels)
        moved = in_order(column, np.array(order, np.int64), memory)
        again = in_order(column, np.arange(len(column)), memory)
    moved.validate(full=True)
    assert moved.type == again.type == pa.large_binary()
    assert moved.to_pylist() == [column[row].as_py() for row in order]
    assert again.to_pylist() == column.to_pylist()
