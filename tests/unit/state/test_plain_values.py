"""Plain values: what an Arrow array holds comes back to the bit, of every type that state can have."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from onceflow.runtime.state.plain_values import array_of_plain, plain_values

DAYS = pa.map_(pa.string(), pa.list_(pa.struct([pa.field("day", pa.date32(), nullable=False)])))
ARRAYS = [
    pa.array([[("a", [{"day": dt.date(2020, 1, 1)}]), ("b", [])], None, []], DAYS),
    pa.array(
        [{"a": Decimal("1.5"), "b": [1, None]}, None, {"a": None, "b": None}],
        pa.struct([("a", pa.decimal128(20, 3)), ("b", pa.list_(pa.int8()))]),
    ),
    pa.array([b"x", None, b""]),
    pa.array([True, None, False]),
    pa.array([2**64 - 1, 0, None], pa.uint64()),
    pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
    pa.array([dt.time(1, 2, 3), None], pa.time64("us")),
    pa.array([dt.timedelta(days=-1), None], pa.duration("us")),
    pa.array([["a"], None, []], pa.large_list(pa.string())),
    pa.array([None, None]),
    pa.array([], pa.struct([("a", pa.int64())])),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
def test_values_come_back(array: pa.Array) -> None:
    for part in (array, array.slice(1), array.slice(1, 0), array.slice(0, 1)):
        plain = plain_values(part)
        back = array_of_plain(plain, part.type)
        back.validate(full=True)
        assert len(plain) == len(part)
        assert back.type == part.type
        assert back.equals(part)


def test_a_float_of_32_bits_comes_back_to_the_bit() -> None:
    bits = pa.array([0x7FC00001, 0x3FC00000, -(1 << 31)], pa.int32())  # a NaN with a payload, 1.5, -0.0
    array = bits.view(pa.float32())
    assert math.isnan(array[0].as_py())
    assert array_of_plain(plain_values(array), pa.float32()).view(pa.int32()).equals(bits)


def test_values_are_plain() -> None:
    [row] = plain_values(pa.array([{"at": dt.date(1970, 1, 2), "of": [{"x": None}]}]))
    assert row == (1, [(None,)])
