"""Digits of timestamps that a column has no room for."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.arrays.timestamps import cast_cutting, timestamps_of_texts

MILLIS = pa.timestamp("ms", "UTC")
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))


@given(st.lists(st.none() | MOMENTS))
def test_numbers_and_texts_are_cut_alike(moments: list[dt.datetime | None]) -> None:
    cut = [m and m.replace(microsecond=m.microsecond // 1000 * 1000) for m in moments]
    assert cast_cutting(pa.array(moments, pa.timestamp("us", "UTC")), MILLIS).to_pylist() == cut
    texts = pa.array([m and m.isoformat() for m in moments], pa.string())
    assert timestamps_of_texts(texts, MILLIS).to_pylist() == cut


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_any_unit(unit: str) -> None:
    text = "2023-11-14T22:13:20.123456789Z"
    (found,) = timestamps_of_texts(pa.array([text]), pa.timestamp(unit, "UTC")).cast(pa.int64()).to_pylist()
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    assert found == 1_700_000_000_123_456_789 // 10 ** (9 - digits)
    nanos = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns"))
    assert cast_cutting(nanos, pa.timestamp(unit)).cast(pa.int64()).to_pylist() == [found, None]


def test_an_offset_is_wanted_just_where_there_is_a_zone() -> None:
    for text, of in (("2023-11-14T22:13:20.1234", MILLIS), ("2023-11-14T22:13:20.1234Z", pa.timestamp("ms"))):
        with pytest.raises(pa.ArrowInvalid):
            timestamps_of_texts(pa.array([text]), of)


def test_inside_of_others_too_and_nothing_else_is_cut() -> None:
    lists = pa.array([[1_500], None], pa.list_(pa.timestamp("us")))
    assert cast_cutting(lists, pa.list_(pa.timestamp("ms"))).cast(pa.list_(pa.int64())).to_pylist() == [
        [1],
        None,
    ]
    with pytest.raises(pa.ArrowInvalid):
        cast_cutting(pa.array([1.5]), pa.int64())
    with pytest.raises(pa.ArrowInvalid):
        cast_cutting(pa.array([1 << 40]), pa.int32())
