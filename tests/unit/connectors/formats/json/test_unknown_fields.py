"""Fields that nobody declared: ignored, refused, or kept and written back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pydantic
import pytest

from onceflow.connectors.formats import EncodeError, Json
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass(frozen=True)
class Inner:
    x: int


@dataclass(frozen=True)
class Open:
    user: str = field(metadata={"alias": "userId"})
    inner: Inner | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: int


class StrictStruct(msgspec.Struct, forbid_unknown_fields=True):
    x: int


@dataclass
class Holder:
    y: int
    strict: Strict


def bad(format: Json, *values: bytes) -> list[tuple[int, str]]:
    return [(each.row, each.reason) for each in format.decoder().decode(values).bad]


UNKNOWN = b'{"x":1,"y":2}'


@pytest.mark.parametrize("many", [1, 500])
@pytest.mark.parametrize("record_type", [Inner, Strict, StrictStruct])
def test_a_type_says_whether_unknown_fields_are_refused(record_type: Any, many: int) -> None:
    by_type = bad(Json(record_type), *[UNKNOWN] * many)
    refused = [(row, "Object contains unknown field `y`") for row in range(many)]
    assert by_type == ([] if record_type is Inner else refused)
    assert bad(Json(record_type, extra="forbid"), *[UNKNOWN] * many) == refused
    assert bad(Json(record_type, extra="ignore"), *[UNKNOWN] * many) == []


def test_unknown_fields_are_refused_at_any_depth() -> None:
    nested = b'{"userId":"u","inner":{"x":1,"z":1}}'
    assert bad(Json(Open), nested) == []
    assert bad(Json(Open, extra="forbid"), nested) == [
        (0, "Object contains unknown field `z` - at `$.inner`")
    ]
    held = b'{"y":1,"strict":{"x":1,"z":1}}'
    assert bad(Json(Holder), held) == [(0, "Object contains unknown field `z` - at `$.strict`")]
    assert bad(Json(Holder), b'{"y":1,"z":1,"strict":{"x":1}}') == []


def test_unknown_fields_are_kept_and_written_back() -> None:
    format = Json(Open, extra="collect")
    values = [
        b'{"userId":"u","a":[1,{"b":null}],"extra":2,"inner":{"x":1,"z":1}}',
        b'{"userId":"v"}',
        b'{"user":"u"}',
        b'{"userId":"w","a":"\xff"}',
        b'{"userId":"x","user":1.0}',
    ]
    decoded = format.decoder().decode(values)
    assert RecordReader(Open).read(decoded.batch) == [
        Open("u", Inner(1), {"a": [1, {"b": None}], "extra": 2}),
        Open("v"),
        Open("x", None, {"user": 1.0}),
    ]
    assert decoded.rows is not None
    assert decoded.rows.tolist() == [0, 1, 4]
    assert [each.row for each in decoded.bad] == [2, 3]
    assert "is no JSON: " in decoded.bad[1].reason
    assert decoded.bad[1].reason.endswith("at `$.a`")
    written = format.encoder(decoded.batch.schema).encode(decoded.batch).to_pylist()
    assert written == [
        b'{"userId":"u","inner":{"x":1},"a":[1,{"b":null}],"extra":2}',
        b'{"userId":"v","inner":null}',
        b'{"userId":"x","inner":null,"user":1.0}',
    ]


def test_only_who_reads_them_pays_for_unknown_fields() -> None:
    decoder = Json(Open, extra="collect").decoder(frozenset({"user"}))
    assert decoder.decode([b'{"userId":"u","a":1}']).batch.to_pylist() == [{"user": "u"}]


def test_a_tombstone_has_no_unknown_fields() -> None:
    assert Json(Open, extra="collect", on_null="skip").decoder().decode([None, b'{"userId":"u"}']).rows == [1]


def test_a_field_that_is_a_column_too_is_not_written_twice() -> None:
    batch = pa.record_batch([["u"], [None], [[("userId", "1")]]], schema=arrow_schema(Open))
    with pytest.raises(EncodeError, match="column 'extra' holds the field 'userId', which is a column, too"):
        Json(extra="collect").encoder(batch.schema).encode(batch)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(OptionError, match=r"needs a field `extra: dict\[str, Any\]` in Inner"):
        Json(Inner, extra="collect")
    with pytest.raises(OptionError, match='extra=\'all\': write "ignore", "forbid" or "collect"'):
        Json(Inner, extra="all")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"'extra', of type dict\[str, Any\], which the rows don't have"):
        Json(extra="collect").encoder(arrow_schema(Inner))
