"""Which columns of rows a table takes, and how."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.tables.columns import TypesOfTable, fitted, takes
from onceflow.runtime.errors import Fatal

TYPES = TypesOfTable("Delta", 8, False)


@pytest.mark.parametrize(
    ("wanted", "of", "fits"),
    [
        (pa.int64(), pa.int32(), True),
        (pa.int32(), pa.int64(), False),
        (pa.int32(), pa.uint16(), True),
        (pa.int32(), pa.uint32(), False),
        (pa.float64(), pa.int32(), True),
        (pa.float64(), pa.int64(), False),
        (pa.float32(), pa.int16(), True),
        (pa.float32(), pa.float64(), False),
        (pa.decimal128(12, 2), pa.int32(), True),
        (pa.decimal128(11, 2), pa.int32(), False),
        (pa.decimal128(10, 3), pa.decimal128(8, 2), True),
        (pa.decimal128(10, 1), pa.decimal128(8, 2), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), True),
        (pa.string(), pa.binary(), False),
        (pa.binary(), pa.binary(16), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Paris"), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
        (pa.timestamp("us"), pa.timestamp("ns"), False),
        (pa.date32(), pa.date64(), True),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.list_(pa.int64()), pa.list_(pa.int32()), True),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), False),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8()), True),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int8())]), True),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())]), False),
        (pa.bool_(), pa.int8(), False),
    ],
)
def test_a_type_is_taken_if_every_value_stays_what_it_is(
    wanted: pa.DataType, of: pa.DataType, fits: bool
) -> None:
    assert takes(wanted, of) is fits


@pytest.mark.parametrize(
    ("of", "stored"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint64(), None),
        (pa.float16(), pa.float32()),
        (pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ns"), None),
        (pa.time64("us"), None),
        (pa.duration("us"), None),
        (pa.decimal256(50, 2), None),
        (pa.large_list(pa.date64()), pa.list_(pa.date32())),
        (pa.struct([("a", pa.list_(pa.time32("s")))]), None),
        (pa.map_(pa.large_string(), pa.uint16()), pa.map_(pa.string(), pa.int32())),
    ],
)
def test_what_a_new_table_has(of: pa.DataType, stored: pa.DataType | None) -> None:
    assert TYPES.stored(of) == stored
    if stored is not None:
        assert takes(stored, of)


def test_time_of_a_day_and_small_numbers_where_a_format_has_other_ones() -> None:
    types = TypesOfTable("Iceberg", 32, True)
    assert types.stored(pa.time32("s")) == pa.time64("us")
    assert types.stored(pa.int8()) == pa.int32()


def test_rows_are_cast_and_new_columns_are_named() -> None:
    rows = pa.schema([("n", pa.int8()), ("note", pa.large_string())])
    table = pa.schema([("x", pa.int64()), ("n", pa.int64())])
    found = fitted(rows, table, TYPES, "sink 'out'", may_add=True)
    assert found.added == (pa.field("note", pa.string()),)
    batch = found.fit(pa.RecordBatch.from_pylist([{"n": 1, "note": "a"}], rows), "sink 'out'")
    assert batch.schema == pa.schema([("n", pa.int64()), ("note", pa.string())])
    with pytest.raises(Fatal, match=r"column 'note' \(large_string\) is not in the table"):
        fitted(rows, table, TYPES, "sink 'out'", may_add=False)
