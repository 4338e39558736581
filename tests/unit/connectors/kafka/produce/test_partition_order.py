"""Rows in the order of their partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka.produce.partition_order import in_order, sort_partitions
from onceflow.runtime.arrays.recycled_memory import Bytes, RecycledMemory
from onceflow.runtime.kernels.ops import Ops, ops_here, using

with_and_without_kernels = pytest.mark.parametrize("chosen", ops_here(), ids=str)


@with_and_without_kernels
@given(partitions=st.lists(st.sampled_from([-1, 0, 1, 2, 40_000]) | st.integers(0, 300), max_size=30))
def test_rows_by_partition_keep_their_order_within_one(chosen: Ops, partitions: list[int]) -> None:
    expected = sorted(range(len(partitions)), key=partitions.__getitem__)
    with using(chosen):
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
    chosen: Ops, values: list[bytes | None], start: int, arrow: pa.DataType, data: st.DataObject
) -> None:
    column = pa.array(values, arrow)[start:]
    order = data.draw(st.permutations(range(len(column))))
    memory = RecycledMemory()
    with using(chosen):
        moved = in_order(column, np.array(order, np.int64), memory)
        again = in_order(column, np.arange(len(column)), memory)
    moved.validate(full=True)
    assert moved.type == again.type == pa.large_binary()
    assert moved.to_pylist() == [column[row].as_py() for row in order]
    assert again.to_pylist() == column.to_pylist()


class Exact:
    """Memory with something else right behind what was reserved."""

    def __init__(self) -> None:
        self._all: list[Bytes] = []

    def reserve(self, most: int) -> Bytes:
        self._all.append(np.full(most + 64, 7, np.uint8))
        return self._all[-1][:most]

    def claim(self, size: int) -> Bytes:
        return self._all[-1][:size]

    @property
    def is_sound(self) -> bool:
        return all((memory[-64:] == 7).all() for memory in self._all)


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=20))
def test_nothing_is_written_behind_the_memory_that_was_reserved(values: list[bytes]) -> None:
    memory = Exact()
    moved = in_order(pa.array(values, pa.binary()), np.arange(len(values))[::-1].copy(), memory)
    assert moved.to_pylist() == values[::-1]
    assert memory.is_sound
