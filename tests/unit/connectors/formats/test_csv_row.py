"""CsvRow against Python's csv, and what is bad and refused."""

from __future__ import annotations

import csv
import datetime as dt
import enum
import io
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow import Scale
from onceflow.connectors.formats import CsvRow
from onceflow.runtime.errors import GraphError, OptionError

COLUMNS = pa.schema([
    pa.field("a", pa.int64(), False), pa.field("b", pa.string()), pa.field("c", pa.float64()),
    pa.field("d", pa.string(), False),
])  # fmt: skip
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=5)
ROWS = st.fixed_dictionaries({
    "a": st.integers(-(1 << 63), (1 << 63) - 1), "b": st.none() | TEXTS,
    "c": st.none() | st.floats(allow_nan=False, allow_infinity=False), "d": TEXTS,
})  # fmt: skip


@given(st.lists(ROWS, max_size=4), st.booleans())
def test_rows_come_back_and_pythons_csv_reads_the_same_cells(
    rows: list[dict[str, Any]], header: bool
) -> None:
    form = CsvRow(COLUMNS, header=header)
    batch = pa.RecordBatch.from_pylist(rows, COLUMNS)
    values = form.encoder(COLUMNS).encode(batch).to_pylist()
    decoded = form.decoder().decode(values)
    assert not decoded.bad
    assert decoded.batch == batch
    for value, row in zip(values, rows, strict=True):
        lines = list(csv.reader(io.StringIO(value.decode(), newline="")))
        assert lines[:-1] == ([COLUMNS.names] if header else [])
        a, b, c, d = lines[-1]
        assert (int(a), b, d) == (row["a"], row["b"] or "", row["d"])
        assert (float(c) if c else None) == row["c"]


def test_digits_that_a_timestamp_has_no_room_for_are_cut_off_and_no_time_is_bad() -> None:
    decoder = CsvRow(pa.schema([("at", pa.timestamp("ms", "UTC"))])).decoder()
    values = [b"2023-11-14T22:13:20.123456Z", b"1969-12-31T23:59:59.9999999Z", b"noon", b"2023-11-14"]
    decoded = decoder.decode(values)
    assert [row["at"].isoformat() for row in decoded.batch.to_pylist()] == [
        "2023-11-14T22:13:20.123000+00:00",
        "1969-12-31T23:59:59.999000+00:00",
    ]
    assert [bad.row for bad in decoded.bad] == [2, 3]
    assert "column 'at'" in decoded.bad[0].reason
    assert "zone offset" in decoded.bad[1].reason


@given(
    st.lists(
        st.one_of(st.binary(max_size=8), st.sampled_from([b"1,x,2,y", b'2,"a,b",,', b"3,,,"])), max_size=6
    )
)
def test_a_bad_line_is_bad_alone(values: list[bytes]) -> None:
    together = CsvRow(COLUMNS).decoder().decode(values)
    alone = [CsvRow(COLUMNS).decoder().decode([value]) for value in values]
    assert together.batch.to_pylist() == [row for each in alone for row in each.batch.to_pylist()]
    assert [bad.row for bad in together.bad] == [i for i, each in enumerate(alone) if each.bad]
    assert all(len(each.bad) + each.batch.num_rows == 1 for each in alone)


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Sale:
    shop: str
    price: Annotated[Decimal, Scale(2)]
    at: dt.datetime
    day: dt.date
    color: Color
    count: int | None


def test_types_of_the_users() -> None:
    good = b"x;1.50;2026-07-01T12:00:00Z;2026-07-01;red;"
    form = CsvRow(Sale, delimiter=";")
    decoded = form.decoder().decode(
        [good, good.replace(b"red", b"blue"), good.replace(b"1.50", b"1.505"), None]
    )
    assert decoded.batch.to_pylist() == [
        {
            "shop": "x", "price": Decimal("1.50"), "at": dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC),
            "day": dt.date(2026, 7, 1), "color": "red", "count": None,
        }
    ]  # fmt: skip
    assert [bad.row for bad in decoded.bad] == [1, 2, 3]
    assert "none of 'red'" in decoded.bad[0].reason
    assert "data loss" in decoded.bad[1].reason


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"1,x,2", "Expected 4 columns, got 3"),
        (b"1,x,2,y\n2,x,2,y", "it has 2 lines of values"),
        (b"", "the value is blank"),
        (b"1.0,x,2,y", "to int64: invalid value '1.0'"),
        (b"9223372036854775808,x,2,y", "to int64"),
        (b",x,2,y", "the cell 'a' is empty, and may not be null"),
        (b"1,\xff,2,y", "invalid UTF8"),
        (b'1,"x,2,y', "Expected 4 columns"),
    ],
)
def test_what_is_bad_is_told(value: bytes, said: str) -> None:
    decoded = CsvRow(COLUMNS).decoder().decode([b"1,x,2,y", value])
    assert [bad.row for bad in decoded.bad] == [1]
    assert said in decoded.bad[0].reason


def test_columns_are_found_by_position_or_by_name() -> None:
    by_place = CsvRow(COLUMNS, columns=["d", "more", "c", "a", "b"])
    row = {"a": 1, "b": "b", "c": 2.0, "d": "d"}
    assert by_place.decoder().decode([b"d,?,2,1,b"]).batch.to_pylist() == [row]
    by_name = CsvRow(COLUMNS, header=True)
    decoded = by_name.decoder(frozenset("ab")).decode(
        [b"b,more,a,c,d\nb,?,1,2,d", b"b,a,a\nb,1,2", b"b,c\nb,2"]
    )
    assert decoded.batch.to_pylist() == [{"a": 1, "b": "b"}]
    assert "two columns 'a'" in decoded.bad[0].reason
    assert "'a'" in decoded.bad[1].reason


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CsvRow(COLUMNS, delimiter="::"), "one character"),
        (lambda: CsvRow(COLUMNS, columns=["a"]), "columns= lacks 'b'"),
        (lambda: CsvRow(COLUMNS, columns=["a"], header=True), "leave out columns="),
        (lambda: CsvRow(pa.schema([("x", pa.list_(pa.int64()))])), "CSV has no form"),
        (lambda: CsvRow().encoder(pa.schema([("x", pa.binary())])), "CSV has no form"),
        (lambda: CsvRow().decoder(), "can only write"),
        (lambda: CsvRow(int), "give a dataclass"),
    ],
)
def test_what_is_wrong_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises((OptionError, GraphError)) as caught:
        make()
    assert said in str(caught.value)
