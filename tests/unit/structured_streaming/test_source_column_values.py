"""The raw columns that Spark gets, against the same rows written out one value after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.connectors.kafka.fetched import HEADERS_TYPE
from onceflow.runtime.contracts import Fetch
from onceflow.runtime.errors import BadRecordError
from onceflow.structured_streaming.source_columns import make_columns, raw_schema
from onceflow.structured_streaming.source_offsets import OffsetRange
from onceflow.structured_streaming.source_rows import rows_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BYTES = st.none() | st.binary(max_size=4)
HEADER = st.fixed_dictionaries({"key": st.sampled_from(["", "é"]), "value": BYTES})
RECORD = st.tuples(
    BYTES,
    BYTES,
    st.integers(0, 2**62),
    st.sampled_from([-1, 0, 1, 1_700_000_000_123, 253_402_300_799_999]),
    st.integers(0, 2),
    st.just([]) | st.lists(HEADER, max_size=2),
)
PLACE = st.tuples(st.sampled_from(["t", "a-longer.topic", "x" * 249]), st.integers(0, 2**31 - 1))


def fetch_of(records: list[Any]) -> Fetch:
    key, value, offset, time_ms, kind, headers = zip(*records, strict=True) if records else [()] * 6
    inside = pa.RecordBatch.from_arrays(
        [
            pa.array(key, pa.binary()),
            pa.array(value, pa.binary()),
            pa.array(headers, HEADERS_TYPE),
            pa.array(kind, pa.int8()),
        ],
        names=["\0key", "\0value", "\0headers", "\0timestamp_kind"],
    )
    row_split = np.zeros(len(records), np.uint16)
    return Fetch(inside, row_split, ("s",), np.array(offset, np.int64), np.array(time_ms, np.int64), None)


def slow_rows(records: list[Any], topic: str, partition: int) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": value,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": None if time_ms < 0 else EPOCH + timedelta(milliseconds=time_ms),
            "timestampType": kind - 1,
            "headers": headers or None,
        }
        for key, value, offset, time_ms, kind, headers in records
    ]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(PLACE, st.lists(RECORD, max_size=20)), min_size=1, max_size=6))
def test_raw_batches_one_after_the_other_hold_the_rows_of_their_own_range(batches: list[Any]) -> None:
    columns = make_columns(raw_schema(True), {})
    made = [
        rows_of(columns, fetch_of(records), OffsetRange(topic, "", partition, 0, 1))
        for (topic, partition), records in batches
    ]
    for batch, ((topic, partition), records) in zip(made, batches, strict=True):
        batch.validate(full=True)
        assert batch.schema == raw_schema(True)
        assert batch.to_pylist() == slow_rows(records, topic, partition)
        sent = pa.BufferOutputStream()
        with pa.ipc.new_stream(sent, batch.schema) as stream:
            stream.write_batch(batch)
        assert pa.ipc.open_stream(sent.getvalue()).read_all().to_pylist() == batch.to_pylist()


@pytest.mark.parametrize("column", ["key", "value", "timestamp", "headers"])
def test_a_null_where_the_schema_allows_none_is_an_error_that_names_its_place(column: str) -> None:
    full = (b"k", b"v", 7, 1, 1, [{"key": "h", "value": None}])
    lacks: dict[str, Any] = {"key": 0, "value": 1, "timestamp": 3, "headers": 5}
    nothing = {"timestamp": -1, "headers": []}.get(column)
    bare = tuple(nothing if at == lacks[column] else 9 if at == 2 else each for at, each in enumerate(full))
    field = raw_schema(True).field(column)
    where = OffsetRange("t", "", 3, 0, 10)
    columns = make_columns(pa.schema([field.with_nullable(False)]), {})
    assert rows_of(columns, fetch_of([full, full]), where).num_rows == 2
    with pytest.raises(BadRecordError, match=rf"'{column}' is NOT NULL .* in t-3 at offset 9 has none"):
        rows_of(columns, fetch_of([full, bare]), where)
    rows_of(make_columns(pa.schema([field]), {}), fetch_of([full, bare]), where)
