"""Columns that a sink is given by name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.named_columns import check_columns, columns_given, how_rows_go
from onceflow.runtime.errors import GraphError


def test_one_name_several_or_none() -> None:
    assert columns_given("id") == ("id",)
    assert columns_given(["id", "day"]) == ("id", "day")
    assert columns_given(None) == columns_given(()) == ()


def test_a_column_that_the_rows_lack_is_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    check_columns("key", ["id", "day"], schema, "out")
    with pytest.raises(GraphError, match=r"sink 'out': partition column 'dya' is not in the rows.*'day'"):
        check_columns("partition", ["id", "dya"], schema, "out")


def test_a_plan_says_how_rows_go() -> None:
    assert how_rows_go(()) == "appended"
    assert how_rows_go(("a", "b")) == "replaced by a, b"
