"""Raw and Text: values as they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Raw, Text
from onceflow.runtime.errors import GraphError


def test_raw_bytes_pass_through_and_a_missing_value_is_null() -> None:
    values = [b"", b"\xff\x00", None, b"a" * 1_000_000]
    decoded = Raw("payload").decoder().decode(values)
    assert decoded.batch.schema.names == ["payload"]
    assert decoded.rows is None
    assert Raw("payload").encoder(decoded.batch.schema).encode(decoded.batch).to_pylist() == values


@pytest.mark.parametrize("arrow", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("format", [Raw(), Text()])
def test_the_bytes_of_an_arrow_array_are_not_copied(format: Raw | Text, arrow: pa.DataType) -> None:
    values = pa.array([b"before", b"a", None, b"bc" * 100], arrow).slice(1)
    column = format.decoder().decode(values).batch.column(0)
    assert column.cast(arrow).equals(values)
    assert column.buffers()[2].address == values.buffers()[2].address


def test_text_that_is_not_utf8_is_bad_and_the_rest_stays_in_order() -> None:
    decoded = Text().decoder().decode([b"a", b"\xff", None, "é".encode(), b"\xed\xa0\x80", b""])
    assert decoded.batch.column("value").to_pylist() == ["a", None, "é", ""]
    assert decoded.rows is not None
    assert decoded.rows.tolist() == [0, 2, 3, 5]
    assert [bad.row for bad in decoded.bad] == [1, 4]
    assert "not UTF-8" in decoded.bad[0].reason


def test_without_their_column_values_are_only_counted() -> None:
    for format in (Raw(), Text()):
        decoded = format.decoder(frozenset({"other"})).decode([b"a", None, b"b"])
        assert (decoded.batch.num_rows, decoded.batch.num_columns) == (3, 0)


def test_the_column_to_write_must_be_there_and_of_the_right_type() -> None:
    schema = pa.schema([("line", pa.string()), ("n", pa.int64()), ("blob", pa.large_binary())])
    batch = pa.RecordBatch.from_arrays([["x", None], [1, 2], [b"y", b"z"]], schema=schema)
    assert Text("line").encoder(schema).encode(batch).to_pylist() == [b"x", None]
    assert Raw("blob").encoder(schema).encode(batch).to_pylist() == [b"y", b"z"]
    with pytest.raises(GraphError, match="did you mean 'line'"):
        Text("lime").encoder(schema)
    with pytest.raises(GraphError, match="'n' is int64"):
        Text("n").encoder(schema)
    with pytest.raises(GraphError, match="'line' is string"):
        Raw("line").encoder(schema)
