"""Records that may be there already have a header more, behind their own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.produce.marked_records import HEADER, with_header

PAIRS = st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary(max_size=2)), max_size=3)


@given(st.lists(st.none() | PAIRS, max_size=6), st.integers(0, 3))
def test_each_record_keeps_its_headers_and_gets_one_more(
    rows: list[list[tuple[str, bytes | None]] | None], first: int
) -> None:
    given_headers = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows]
    columns: dict[str, Any] = {field.name: pa.nulls(len(rows), field.type) for field in PRODUCE_SCHEMA}
    columns["headers"] = pa.array(given_headers, PRODUCE_SCHEMA.field("headers").type)
    columns["topic"] = pa.array(["t"] * len(rows))
    columns["partition"] = pa.array(range(len(rows)), pa.int32())
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=PRODUCE_SCHEMA).slice(first)
    marked = with_header(batch, b"12")
    mark = [{"key": HEADER, "value": b"12"}]
    assert marked["headers"].to_pylist() == [(row or []) + mark for row in given_headers[first:]]
    assert marked.schema == PRODUCE_SCHEMA
    assert marked.drop_columns(["headers"]) == batch.drop_columns(["headers"])
