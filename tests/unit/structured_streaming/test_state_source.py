"""What a task of Spark's reads of a state: planned and read in this process, with filters and of changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource

import onceflow
from onceflow.structured_streaming.state_changes import ChangesReader
from onceflow.structured_streaming.state_source import (
    FilteredStateReader,
    StateReader,
    reader_class,
    state_schema,
)

GOLDEN = Path(__file__).parents[1] / "changed_programs" / "golden_3"
OPTIONS = {"operator": "process", "state": "n"}
if not hasattr(datasource, "EqualTo"):
    pytest.skip("filters are pushed down since Spark 4.1", allow_module_level=True)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    shutil.copytree(GOLDEN, tmp_path / "checkpoints")
    return {"path": str(tmp_path / "checkpoints"), **OPTIONS}


def rows(reader: Any) -> tuple[int, list[Any]]:
    """How many parts there are, and what is in them."""
    parts = reader.partitions()
    batches = [batch for part in parts for batch in reader.read(part)]
    return len(parts), [row for batch in batches for row in batch.to_pylist()]


def test_a_filter_on_the_key_leaves_one_part(options: dict[str, str], monkeypatch: Any) -> None:
    whole = StateReader(state_schema(options), options)
    parts, everything = rows(whole)
    assert parts == 2
    filtered = FilteredStateReader(state_schema(options), options)
    filters = [datasource.EqualTo(("user",), "user-023"), datasource.GreaterThan(("value",), 0)]
    assert filtered.pushFilters(filters) == filters, "Spark applies them, too"
    assert rows(filtered) == (1, [row for row in everything if row["user"] == "user-023"])
    by_value = FilteredStateReader(state_schema(options), options)
    by_value.pushFilters(filters[1:])
    assert rows(by_value) == (2, everything)
    other = FilteredStateReader(state_schema(options), {**options, "key": "user-063"})
    other.pushFilters(filters)
    assert rows(other)[1] == [row for row in everything if row["user"] == "user-063"], "options come first"


def test_only_where_spark_asks_for_filters_is_there_a_reader_that_takes_them() -> None:
    """Where they are turned off it refuses such a reader."""
    assert reader_class({}) is StateReader
    assert reader_class({"pyspark.sql.worker.data_source_pushdown_filters": pa}) is FilteredStateReader


def test_changes_are_read_in_parts(options: dict[str, str]) -> None:
    """A checkpoint has none since itself."""
    since = {**options, "changes_from": "2", "checkpoint": "2"}
    schema = state_schema(since)
    assert schema.names == ["row_kind", "user", "value"]
    assert rows(ChangesReader(schema, since)) == (1, [])
    assert onceflow.read_changes(options["path"], 2, 2, "process", "n").num_rows == 0
