"""Values as PostgreSQL writes them, as Arrow columns: what fits, and what is a bad row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.postgres.catalog import Column
from onceflow.connectors.postgres_cdc.messages import UNCHANGED
from onceflow.connectors.postgres_cdc.text_columns import check_column, to_batch
from onceflow.runtime.errors import Fatal


def column(of: str, element: str = "") -> Column:
    return Column("c", of, of, element, False, False, False)


@pytest.mark.parametrize(
    ("of", "type_", "fits"),
    [
        (pa.int32(), "int8", True),
        (pa.int64(), "numeric", False),
        (pa.decimal128(10, 2), "int4", True),
        (pa.float64(), "float8", True),
        (pa.float64(), "numeric", False),
        (pa.timestamp("us"), "timestamptz", False),
        (pa.timestamp("us", "UTC"), "timestamptz", True),
        (pa.string(), "tsvector", True),
        (pa.list_(pa.int32()), "_int4", False),
    ],
)
def test_a_column_fits_if_all_its_values_can_be_told(of: pa.DataType, type_: str, fits: bool) -> None:
    field = pa.field("c", of)
    if fits:
        check_column(field, column(type_), "here")
        return
    with pytest.raises(Fatal, match=r"here: column 'c' is .* in the table and .*read it as text"):
        check_column(field, column(type_), "here")


def test_bad_rows_are_told_and_the_others_are_kept() -> None:
    schema = pa.schema([pa.field("small", pa.int8()), pa.field("name", pa.string(), False)])
    rows = [(b"1", b"a"), (b"300", b"b"), (b"2", None), (None, b"d"), (b"3", UNCHANGED)]
    batch, bad = to_batch(rows, schema)
    assert batch.to_pylist() == [{"small": 1, "name": "a"}, {"small": None, "name": "d"}]
    assert [each.row for each in bad] == [1, 2, 4]
    assert "'small' is int8" in bad[0].reason
    assert "may not be" in bad[1].reason
    assert "REPLICA IDENTITY FULL" in bad[2].reason


def test_rows_without_columns_are_still_rows() -> None:
    batch, bad = to_batch([(), ()], pa.schema([]))
    assert (batch.num_rows, bad) == (2, [])


def test_a_time_is_cut_to_the_digits_of_its_column() -> None:
    schema = pa.schema([("at", pa.timestamp("ms", "UTC")), ("local", pa.timestamp("ms"))])
    values = (b"2023-11-14 22:13:20.123456+00", b"2023-11-14 22:13:20.123456")
    batch, bad = to_batch([values], schema)
    assert not bad
    assert batch.cast(pa.schema([("at", pa.int64()), ("local", pa.int64())])).to_pylist() == [
        {"at": 1_700_000_000_123, "local": 1_700_000_000_123}
    ]
