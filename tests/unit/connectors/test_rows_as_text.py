"""Rows as people see them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from onceflow.connectors.rows_as_text import json_lines, table_lines


def test_a_table_has_numbers_to_the_right_and_long_texts_cut() -> None:
    batch = pa.record_batch({"user": ["ann", None], "count": [3, 1_000], "note": ["a\nb", "x" * 70]})
    assert table_lines(batch) == [
        "user  count  note",
        "────  ─────  " + "─" * 60,
        "ann       3  a b",
        "null   1000  " + "x" * 59 + "…",
    ]


def test_a_row_is_a_json_object_and_what_json_does_not_know_is_text() -> None:
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
        '{"user": "änn", "at": "2026-01-02T03:04:05+00:00", "raw": "b\'x\'", '
        '"tags": ["a"], "counts": {"a": 1}}'
    ]
