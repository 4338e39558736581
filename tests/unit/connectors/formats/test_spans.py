"""Values where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.formats import spans
from onceflow.connectors.formats.format import as_binary, as_list, taken, value_at
from onceflow.connectors.formats.spans import Spans

CONTENT = np.frombuffer(b"..abc.....de#", np.uint8)
GIVEN = Spans(CONTENT, np.array([2, 5, 7, 10]), np.array([3, 0, -1, 2]))
VALUES = [b"abc", b"", None, b"de"]


def test_they_are_a_sequence() -> None:
    assert list(GIVEN) == as_list(GIVEN) == VALUES
    assert len(GIVEN) == 4
    assert list(GIVEN[1:]) == VALUES[1:]
    assert [value_at(GIVEN, row) for row in range(4)] == VALUES
    assert list(taken(GIVEN, np.array([0, 2, 3]))) == [b"abc", None, b"de"]


def test_an_array_of_them_is_a_copy() -> None:
    content = CONTENT.copy()
    array: Any = as_binary(Spans(content, GIVEN.at, GIVEN.lengths))
    content[:] = 0
    array.validate(full=True)
    assert (array.type, array.to_pylist()) == (pa.binary(), VALUES)
    assert as_binary(GIVEN[:0]).type == pa.binary()
    assert as_binary(GIVEN[3:]).to_pylist() == [b"de"]
    assert as_binary(GIVEN[2:3]).to_pylist() == [None]


@pytest.mark.parametrize(
    ("bytes_max", "expected"), [(13, pa.binary()), (5, pa.binary()), (4, pa.large_binary())]
)
def test_an_array_of_too_many_bytes_is_large(
    bytes_max: int, expected: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the values are too many or only what lies around them."""
    monkeypatch.setattr(spans, "BINARY_BYTES_MAX", bytes_max)
    array: Any = GIVEN.to_binary()
    array.validate(full=True)
    assert (array.type, array.to_pylist()) == (expected, VALUES)


def test_who_has_them_can_tell_which_are_not_there() -> None:
    is_null = GIVEN.is_null()
    assert is_null is not None
    assert is_null.tolist() == [False, False, True, False]
    assert GIVEN[:2].is_null() is None
    assert GIVEN.ends().tolist() == [5, 5, 7, 12]


def test_values_may_lie_where_32_bits_do_not_reach() -> None:
    content = np.zeros((1 << 31) + 100, np.uint8)  # of which only what is written takes memory
    at = (1 << 31) + 50
    content[at : at + 3] = list(b"abc")
    far = Spans(content, np.array([0, at, at + 3]), np.array([2, 3, -1]))
    array: Any = far.to_binary()
    array.validate(full=True)
    assert (array.type, array.to_pylist()) == (pa.binary(), [b"\0\0", b"abc", None])
    assert list(far) == array.to_pylist()
