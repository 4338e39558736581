"""All rows of all tables in one: what a filter on operator and state leaves out is not read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource

import onceflow
from onceflow.runtime.state_tables.reader import StoredTable
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.structured_streaming import state_source
from onceflow.structured_streaming.state_source import FilteredStateReader, StateReader, state_schema

GOLDEN = Path(__file__).parents[1] / "changed_programs" / "golden_3"
if not hasattr(datasource, "EqualTo"):
    pytest.skip("filters are pushed down since Spark 4.1", allow_module_level=True)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    shutil.copytree(GOLDEN, tmp_path / "checkpoints")
    return {"path": str(tmp_path / "checkpoints"), "all_rows": "true"}


def rows(reader: StateReader) -> list[dict[str, Any]]:
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def filtered(options: dict[str, str], *filters: Any) -> FilteredStateReader:
    reader = FilteredStateReader(state_schema(options), options)
    assert reader.pushFilters(list(filters)) == list(filters), "Spark applies them, too"
    return reader


def expected(path: str) -> list[str]:
    with onceflow.read_state(path) as stored:
        return sorted(
            json.dumps([table.operator, table.state, row], default=str)
            for table in stored.tables
            for row in table.read().to_pylist()
        )


def test_each_row_of_each_table_is_there_once(options: dict[str, str]) -> None:
    found = rows(StateReader(state_schema(options), options))
    whole = [
        json.dumps([row["operator"], row["state"], json.loads(row["key"] or "{}") | json.loads(row["value"])])
        for row in found
    ]
    assert sorted(whole) == expected(options["path"])
    assert len({(row["operator"], row["state"]) for row in found}) > 2


def read_parts(reader: StateReader) -> int:
    return len(reader.partitions())


def test_a_filter_on_operator_and_state_leaves_the_files_of_one_table(options: dict[str, str]) -> None:
    everything = rows(StateReader(state_schema(options), options))
    of_process = filtered(options, datasource.EqualTo(("operator",), "process"))
    assert rows(of_process) == [row for row in everything if row["operator"] == "process"]
    one = filtered(
        options,
        datasource.In(("operator",), ("process", "nothing")),
        datasource.EqualTo(("state",), "n"),
        datasource.GreaterThan(("key",), "a"),
    )
    assert rows(one) == [row for row in everything if (row["operator"], row["state"]) == ("process", "n")]
    assert read_parts(one) < read_parts(of_process) < read_parts(StateReader(state_schema(options), options))
    none = filtered(options, datasource.EqualTo(("operator",), "nothing"))
    assert (none.partitions(), list(none.read(datasource.InputPartition(None)))) == ([], [])


def test_the_mutant_that_reads_all_is_seen(options: dict[str, str]) -> None:
    def all_left(filters: Sequence[Any], tables: Sequence[StoredTable]) -> list[StoredTable]:
        return list(tables)

    mutant = Mutant("filters are not looked at", [(state_source, "tables_left", all_left)])
    with mutated(mutant), pytest.raises(AssertionError):
        test_a_filter_on_operator_and_state_leaves_the_files_of_one_table(options)
