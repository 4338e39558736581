"""Offsets of an array say where its own values are, whatever it is a part of."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.arrays.offsets import offsets_of

TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


@given(
    st.sampled_from(TYPES),
    st.lists(st.none() | st.text(max_size=4), max_size=9),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_values_lie_between_their_offsets(
    arrow: pa.DataType, texts: list[str | None], start: int, count: int
) -> None:
    array = pa.array(texts, pa.string()).cast(arrow).slice(start, count)
    offsets, data = offsets_of(array).tolist(), array.buffers()[2]
    assert len(offsets) == len(array) + 1
    content = b"" if data is None else data.to_pybytes()
    for i, value in enumerate(array.cast(pa.large_binary()).to_pylist()):
        assert value is None or content[offsets[i] : offsets[i + 1]] == value


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_lists_have_offsets_of_their_width(make: Any) -> None:
    array: Any = pa.array([[1], [], [2, 3]], make(pa.int64()))[1:]
    offsets = offsets_of(array)
    assert offsets.tolist() == [1, 1, 3]
    assert offsets.itemsize == (8 if make is pa.large_list else 4)
