"""Whether a column's values are of the kinds its type takes, against a slow twin that looks at each value."""

from __future__ import annotations

import datetime as dt
import enum
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.types.kinds_taken import TAKEN, check_kinds


class Text(str):
    """A subclass is taken."""


class Grade(enum.IntEnum):
    GOOD = 1


VALUES: list[Any] = [
    "a", Text("b"), 1, Grade.GOOD, 2**70, True, 1.5, np.int64(1), np.float64(1.5), np.bool_(True), b"a",
    bytearray(b"b"), memoryview(b"c"), None, [1], object(), dt.date(2026, 1, 1),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
]  # fmt: skip
values = st.lists(st.sampled_from(VALUES), max_size=4)
of_one_kind = st.sampled_from(VALUES).flatmap(lambda value: st.lists(st.just(value), max_size=4))


def is_taken(value: Any, arrow: pa.DataType) -> bool:
    kinds = TAKEN[arrow]
    if type(value) in (kinds[0], NoneType):
        return True
    return isinstance(value, kinds) and not (type(value) is dt.datetime and arrow == pa.date32())


@given(values | of_one_kind, st.sampled_from(sorted(TAKEN, key=str)))
def test_kinds_are_taken_and_refused_value_by_value(column: list[Any], arrow: pa.DataType) -> None:
    if all(is_taken(value, arrow) for value in column):
        check_kinds(column, arrow)
    else:
        with pytest.raises(TypeError, match="is no"):
            check_kinds(column, arrow)
