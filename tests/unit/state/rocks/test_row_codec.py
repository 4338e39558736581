"""RowCodec: rows as bytes, also of columns that some batches leave out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.runtime.state.rocks.row_codec import RowCodec

TIMES = pa.list_(pa.field("item", pa.int64(), nullable=False))


def batch(**columns: pa.Array) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    return pa.RecordBatch.from_pydict({"key_group": pa.array([0] * count, pa.uint16())} | columns)


def test_a_column_that_was_left_out_is_empty() -> None:
    codec = RowCodec(["key", "timers", "value"])
    keys = pa.array([{"user": "a"}, {"user": "ü"}])
    early = codec.encode(batch(key=keys))
    late = codec.encode(batch(key=keys, timers=pa.array([[5], []], TIMES), value=pa.array([1.5, None])))
    found = codec.decode([*early, *late])
    assert list(found) == ["key", "timers", "value"]
    assert found["key"].to_pylist() == 2 * keys.to_pylist()
    assert found["timers"].type == TIMES
    assert found["timers"].to_pylist() == [[], [], [5], []]
    assert found["value"].to_pylist() == [None, None, 1.5, None]


def test_a_batch_is_completed_with_what_is_known() -> None:
    codec = RowCodec(["key", "timers"])
    codec.learn(batch(key=pa.array([{"user": "a"}]), timers=pa.array([[5]], TIMES)).schema)
    frozen = codec.frozen()
    completed = frozen.completed(batch(key=pa.array([{"user": "b"}])))
    assert completed.schema.names == ["key_group", "key", "timers"]
    assert completed.column("timers").to_pylist() == [[]]
    assert frozen.decode([])["timers"].type == TIMES


def test_a_column_is_of_one_type() -> None:
    codec = RowCodec(["key"])
    codec.encode(batch(key=pa.array([1])))
    with pytest.raises(AssertionError):
        codec.encode(batch(key=pa.array(["a"])))
