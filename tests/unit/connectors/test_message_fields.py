"""The columns of a source of messages: those of the body, then those beside it, and of these what is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json, Raw
from onceflow.connectors.message_fields import check_distinct, check_value, message_schema, named_fields
from onceflow.runtime.errors import OptionError

VALUE = Json(pa.schema([("a", pa.int64()), ("b", pa.string())]))


def test_what_has_no_name_is_left_out() -> None:
    found = named_fields({"at": pa.int64()}, ("id",), id="message_id", routing_key=None, at="at")
    assert found == {"id": pa.field("message_id", pa.string()), "at": pa.field("at", pa.int64(), False)}


def test_columns_of_the_body_come_first_and_only_those_that_are_read() -> None:
    beside = pa.field("id", pa.string(), nullable=False)
    assert message_schema(VALUE, [beside], None).names == ["a", "b", "id"]
    read = message_schema(VALUE, [beside], frozenset(("id", "b")))
    assert read.names == ["b", "id"]
    assert not read.field("id").nullable


def test_a_value_has_to_say_what_is_in_it() -> None:
    check_value(Raw("value"))
    with pytest.raises(OptionError, match=r"value=Json.* can only encode; to read, say what is in it"):
        check_value(Json())
    with pytest.raises(OptionError, match="value is the class Json"):
        check_value(Json)  # type: ignore[arg-type]


def test_two_columns_of_one_name_are_refused() -> None:
    check_distinct(["a", "b"])
    with pytest.raises(OptionError, match="two columns of the source are named 'a'"):
        check_distinct(["b", "a", "a"])
