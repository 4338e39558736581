"""Types come back from their texts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.runtime.state.description import type_text
from onceflow.runtime.state_tables.type_texts import type_of_text

TYPES = [
    pa.int64(),
    pa.uint8(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.null(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(16),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms"),
    pa.time64("us"),
    pa.duration("us"),
    pa.decimal128(10, 2),
    pa.list_(pa.field("item", pa.int64(), nullable=False)),
    pa.map_(pa.string(), pa.list_(pa.decimal128(5, 1))),
    pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.struct([("c", pa.string())]))]),
]


@pytest.mark.parametrize("of", TYPES, ids=str)
def test_a_type_comes_back_from_its_text(of: pa.DataType) -> None:
    assert type_of_text(type_text(of)) == of
