"""Spark's types as Arrow has them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, StringType, StructType, TimestampType

from onceflow.structured_streaming.arrow_types import arrow_schema_of


def test_regression_a_timestamp_has_an_arrow_type_in_each_version() -> None:
    schema = (
        StructType().add("at", TimestampType()).add("all", ArrayType(TimestampType())).add("t", StringType())
    )
    instant = pa.timestamp("us", "UTC")
    found = arrow_schema_of(schema)
    assert [found.field("at").type, found.field("all").type.value_type] == [instant, instant]
