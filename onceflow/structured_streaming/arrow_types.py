"""The Arrow types that Spark's columns have, in every version of PySpark."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema


def arrow_schema_of(schema: Any) -> pa.Schema:
    """The Arrow schema of a StructType. TIMESTAMP is in UTC, which Spark compares to the letter with what a
    source gives; what it gives to a sink has the session's time zone, and the same instants."""
    # Since 4.2 Spark wants to be told the zone, and without it refuses a schema that has a TIMESTAMP.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    arrow: pa.Schema = to_arrow_schema(schema, timezone="UTC") if takes_zone else to_arrow_schema(schema)
    return arrow
