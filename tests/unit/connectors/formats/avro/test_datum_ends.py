"""Where datums end: the compiled loop finds what skipping each of them finds, and is sure of nothing else."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.connectors.formats.avro.datum_ends import quick_datum_ends
from onceflow.connectors.formats.avro.rows import BadDatumError, datum_ends
from onceflow.connectors.formats.avro.schema.nodes import parse_schema

FLAT: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": ["double", "null"]},
        {"name": "is_new", "type": "boolean"},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["red", "green"]}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 3}},
        {"name": "small", "type": "float"},
    ],
}
NESTED: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "tags", "type": {"type": "array", "items": "string"}}],
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.integers(-(1 << 63), (1 << 63) - 1),
            "text": st.none() | st.text(max_size=80),
            "raw": st.binary(max_size=70),
            "at": st.none() | st.floats(allow_nan=False),
            "is_new": st.booleans(),
            "color": st.sampled_from(["red", "green"]),
            "id": st.binary(min_size=3, max_size=3),
            "small": st.floats(width=32, allow_nan=False),
        }
    ),
    max_size=6,
)
ROW = {
    "n": 1,
    "text": None,
    "raw": b"",
    "at": None,
    "is_new": True,
    "color": "red",
    "id": b"abc",
    "small": 0.5,
}


def encoded(schema: dict[str, Any], rows: list[dict[str, Any]]) -> tuple[bytes, list[int]]:
    file, ends = io.BytesIO(), []
    for row in rows:
        fastavro.schemaless_writer(file, schema, row)
        ends.append(file.tell())
    return file.getvalue(), ends


@given(ROWS)
@example([ROW, {**ROW, "text": "x" * 80, "at": 1.5}])
def test_datums_end_where_they_were_written(rows: list[dict[str, Any]]) -> None:
    datums, ends = encoded(FLAT, rows)
    found = quick_datum_ends(parse_schema(FLAT))(datums, len(rows))
    assert found.dtype == np.int64
    assert found.tolist() == ends


def test_other_records_are_skipped_one_by_one() -> None:
    datums, ends = encoded(NESTED, [{"tags": ["a", "b"]}, {"tags": []}])
    assert quick_datum_ends(parse_schema(NESTED))(datums, 2).tolist() == ends


@given(ROWS, st.integers(0, 200), st.integers(0, 255), st.integers(-1, 1))
@example([ROW], 0, 0, 1)
@example([ROW], 5, 9, 0)
def test_what_is_damaged_is_judged_as_by_skipping(
    rows: list[dict[str, Any]], place: int, byte: int, more: int
) -> None:
    """A byte is another one, or there are more datums, or fewer, than are said."""
    written, _ = encoded(FLAT, rows)
    datums = bytes(byte if n == place else each for n, each in enumerate(written))
    count, writer = max(0, len(rows) + more), parse_schema(FLAT)
    assert judgement(quick_datum_ends(writer), datums, count) == judgement(datum_ends(writer), datums, count)


def judgement(ends: Any, datums: bytes, count: int) -> list[int] | str:
    """Where they end, or what is wrong with them."""
    try:
        return [int(end) for end in ends(datums, count)]
    except BadDatumError as error:
        return str(error)
