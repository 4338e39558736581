"""Decimals as JSON, there and back, and columns of nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from onceflow.connectors.formats import Json


def rows(format: Json, *values: bytes) -> list[dict[str, Any]]:
    decoded = format.decoder().decode(values)
    assert not decoded.bad
    return decoded.batch.to_pylist()


def test_decimals_are_numbers_with_all_their_digits() -> None:
    schema = pa.schema([("d", pa.decimal128(38, 10)), ("n", pa.list_(pa.decimal128(5, 2)))])
    digits = "1234567890123456789012345678.0123456789"
    row = {"d": Decimal(digits), "n": [Decimal("-0.10"), None]}
    written = Json().encoder(schema).encode(pa.RecordBatch.from_pylist([row], schema))
    assert written.to_pylist() == [f'{{"d":{digits},"n":[-0.10,null]}}'.encode()]
    assert rows(Json(schema), written[0].as_py()) == [row]
    narrow = Json(pa.schema([("n", pa.decimal128(5, 2))]))
    good = [b'{"n":1}', b'{"n":"1.5"}', b'{"n":1e2}', b'{"n":1.500}', b"{}"]
    assert [row["n"] for row in rows(narrow, *good)] == [
        Decimal(n) if n else None for n in ("1", "1.5", "100", "1.5", "")
    ]
    for bad in (
        b'{"n":1.234}',
        b'{"n":1000}',
        b'{"n":"NaN"}',
        b'{"n":true}',
        b'{"n":"x"}',
        b'{"n":1e999999999}',
    ):
        decoded = narrow.decoder().decode([good[0], bad])
        assert (decoded.batch.num_rows, len(decoded.bad)) == (1, 1), bad


def test_a_column_of_nothing_is_null() -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(2)], ["n"])
    assert Json().encoder(batch.schema).encode(batch).to_pylist() == [b'{"n":null}', b'{"n":null}']
