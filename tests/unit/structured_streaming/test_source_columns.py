"""Which columns a source has, and which are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Avro, Json
from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.source_columns import KAFKA_COLUMNS, make_columns, raw_schema

USER = pa.schema([("user", pa.string()), ("amount", pa.int64())])
AVRO = (
    '{"type":"record","name":"P","fields":[{"name":"user","type":"string"},{"name":"amount","type":"long"}]}'
)


def test_the_raw_columns_have_the_order_and_types_of_sparks_own_source() -> None:
    assert raw_schema(True).names == list(KAFKA_COLUMNS)
    assert raw_schema(False).names == list(KAFKA_COLUMNS)[:-1]
    assert make_columns(raw_schema(True), {}).kafka == {name: name for name in KAFKA_COLUMNS}


def test_fields_of_the_value_and_kafkas_own_columns_stand_side_by_side() -> None:
    schema = pa.schema([("place", pa.int64()), *zip(USER.names, USER.types, strict=True)])
    columns = make_columns(schema, {"format": "JSON", "offset_column": "place"})
    assert columns.kafka == {"place": "offset"}
    assert columns.value == Json(pa.schema([schema.field("user"), schema.field("amount")]))


def test_avro_is_decoded_by_a_registry_or_by_the_schema_it_was_written_with() -> None:
    by_registry = make_columns(USER, {"format": "avro", "schema_registry": "http://127.0.0.1:1"})
    assert by_registry.value == Avro(USER, registry="http://127.0.0.1:1")
    assert make_columns(USER, {"format": "avro", "avro_schema": AVRO}).value == Avro(AVRO, framing="none")


@pytest.mark.parametrize(
    ("schema", "given", "said"),
    [
        (pa.schema([("valeu", pa.binary())]), {}, "no column 'valeu' .did you mean 'value'"),
        (pa.schema([("offset", pa.string())]), {}, "column 'offset' is string in the schema, and Kafka's"),
        (USER, {"format": "jsn"}, "did you mean 'json'"),
        (USER, {"format": "avro"}, "needs .option.\"schema_registry\""),
        (USER.append(pa.field("x", pa.int64())), {"format": "avro", "avro_schema": AVRO}, "no field 'x'"),
        (USER, {"format": "json", "offset_column": "plaice"}, "offset_column='plaice' is not a column"),
        (USER, {"format": "json", "offset_column": "user"}, "'user' is string in the schema"),
        (USER, {"format": "json", "mode": "dropmalformed"}, "no record is dropped without a trace"),
        (USER, {"format": "json", "mode": "permissive"}, "needs a column '_corrupt_record'"),
        (USER, {"format": "json", "errors_tolerance": "all"}, "needs a column '_corrupt_record'"),
        (raw_schema(False), {"errors_tolerance": "all"}, "option 'errors_tolerance' is for decoded values"),
        (USER, {"format": "json", "columnNameOfCorruptRecord": "user"}, "of no use unless mode"),
        (pa.schema([("at", pa.int64())]), {"format": "json", "offset_column": "at"}, "no column .* is left"),
        (raw_schema(False), {"mode": "permissive"}, "option 'mode' is for decoded values"),
    ],
)  # fmt: skip
def test_columns_that_can_not_be_had_are_refused(schema: pa.Schema, given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        make_columns(schema, given)


def test_permissive_needs_columns_that_may_be_null() -> None:
    schema = pa.schema([pa.field("user", pa.string(), False), ("_corrupt_record", pa.binary())])
    with pytest.raises(OptionError, match="'user' may not"):
        make_columns(schema, {"format": "json", "mode": "permissive"})
