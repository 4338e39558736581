"""What a column says of itself goes with it as long as it is that column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import ColumnCheck
from onceflow.runtime.types.column_forms import JSON, described, form_of, outside_name, renamed
from onceflow.runtime.types.record_types import arrow_schema


@dataclass
class Row:
    user_id: int = field(metadata={"alias": "userId"})
    payload: Any


SCHEMA = arrow_schema(Row)


def test_a_name_outside_is_not_that_of_another_column() -> None:
    assert outside_name(SCHEMA.field("user_id")) == "userId"
    assert outside_name(renamed(SCHEMA.field("user_id"), "user_id")) == "userId"
    assert outside_name(renamed(SCHEMA.field("user_id"), "customer")) == "customer"
    assert form_of(renamed(SCHEMA.field("payload"), "body")) == JSON
    assert described(pa.field("x", pa.string()), "", "x").metadata is None


@dataclass
class Other:
    user_id: int = field(metadata={"alias": "userId"})
    payload: str


def test_columns_that_mean_something_else_do_not_come_together(list_source: Any) -> None:
    job = JobGraphBuilder("job")
    rows, others = (job.source(list_source(each), uid=each.__name__) for each in (Row, Other))
    with pytest.raises(GraphError, match=r"'Row' has user_id .*, payload string \(json\); 'Other' has .*"):
        rows.union(others)


def test_what_is_selected_is_written_as_what_it_was() -> None:
    check = ColumnCheck("select", SCHEMA)
    kept = check.field("user_id", pl.col("user_id"))
    other = check.field("customer", pl.col("user_id").alias("customer"))
    body = check.field("body", pl.col("payload").alias("body"))
    text = check.field("text", pl.col("payload") + "")
    batch = pa.record_batch([[1], [1], ['{"a":1}'], ['{"a":1}']], schema=pa.schema([kept, other, body, text]))
    (written,) = Json().encoder(batch.schema).encode(batch).to_pylist()
    assert written == rb'{"userId":1,"customer":1,"body":{"a":1},"text":"{\"a\":1}"}'
