"""Rows as people see them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.collections.python_rows import row_type
from onceflow.connectors.rows_as_text import json_lines, table_lines
from tests.conformance import types_table


def test_a_table_has_numbers_to_the_right_and_long_texts_cut() -> None:
    batch = pa.record_batch({"user": ["ann", None], "count": [3, 1_000], "note": ["a\nb", "x" * 70]})
    assert table_lines(batch) == [
        "user  count  note",
        "────  ─────  " + "─" * 60,
        "ann       3  a b",
        "null   1000  " + "x" * 59 + "…",
    ]


def test_a_row_is_a_json_object_as_the_format_json_has_it() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    batch = pa.record_batch(
        {
            "user": ["änn"],
            "at": pa.array([at], pa.timestamp("ms", "UTC")),
            "raw": [b"x"],
            "tags": [["a"]],
            "counts": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    assert list(json_lines(batch)) == [
        '{"user": "änn", "at": "2026-01-02T03:04:05Z", "raw": "eA==", "tags": ["a"], "counts": {"a": 1}}'
    ]


def test_what_json_does_not_know_is_shown_as_python_has_it() -> None:
    batch = pa.record_batch({"x": [float("nan"), 1.5], "raw": [b"x", b"\xff"], "y": [[1], None]})
    assert list(json_lines(batch)) == [
        '{"x": NaN, "raw": "x", "y": [1]}',
        '{"x": 1.5, "raw": "0xff", "y": null}',
    ]


Order = types_table.Placed | types_table.Cancelled


@pytest.mark.parametrize(
    ("python", "value", "cell"),
    [
        (Order, types_table.Placed("placed", 3), '{"kind": "placed", "amount": 3}'),
        (tuple[int, str], (1, "é"), '[1, "é"]'),
        (Any, {"a": [1, None]}, '{"a": [1, null]}'),
        (Any, None, "null"),
        (Decimal, Decimal("1.5"), "1.5"),
        (list[Decimal], [Decimal("1.5"), Decimal(10**19 + 1)], '[1.5, "10000000000000000001"]'),
        (dt.datetime, dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "2026-01-02 03:00:00Z"),
        (dt.timedelta, dt.timedelta(seconds=90), "0:01:30"),
        (types_table.Color, types_table.Color.RED, "red"),
        (types_table.Color | None, None, "null"),
        (types_table.Point, types_table.Point(1, 2), '{"x": 1, "y": 2}'),
        (dict[int, types_table.Color], {2: types_table.Color.RED}, '{"2": "red"}'),
        (bytes, b"text", "text"),
        (bytes, b"\x00\xff", "0x00ff"),
    ],
)  # fmt: skip
def test_a_cell_has_the_value_and_not_its_column(python: Any, value: Any, cell: str) -> None:
    of = types_table.record_type(python)
    batch = row_type(of, "").batch([of(value)])
    assert table_lines(batch)[2].strip() == cell
