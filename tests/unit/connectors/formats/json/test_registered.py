"""JSON Schema: Confluent's own clients on the other side, what is bad, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import jsonschema
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from onceflow import Scale
from onceflow.connectors.formats import EncodeError, Json, SchemaReference, for_topic
from onceflow.connectors.formats.json.schema_checks import JsonSchema, schema_of_rows
from onceflow.connectors.formats.registry.schemas import RegisteredSchema
from onceflow.runtime.errors import GraphError, OptionError


@dataclass(frozen=True)
class Place:
    x: int


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    place: Place | None = None


SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Purchase",
    "type": "object",
    "properties": {
        "user": {"type": "string", "minLength": 1},
        "amount": {"type": "integer", "minimum": 0},
        "place": {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"maximum": 9}}}]},
        "more": {"type": "array", "items": {"type": "boolean"}},
    },
    "required": ["user"],
}
STRICT = {**SCHEMA, "$schema": "https://json-schema.org/draft/2020-12/schema", "required": ["user", "amount"]}
CONTEXT = SerializationContext("purchases", MessageField.VALUE)
GOOD = {"user": "ann", "amount": 5, "place": {"x": 1}}


def framed(value: Any, schema_id: int = 7) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + json.dumps(value).encode()


def test_confluents_clients_and_ours_read_what_the_other_writes() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://json"})
    theirs = JSONSerializer(json.dumps(SCHEMA), client)(GOOD, CONTEXT)
    schema_id = int.from_bytes(theirs[1:5], "big")
    form = Json(Purchase, registry={schema_id: SCHEMA}, json_schema=SCHEMA)
    decoded = form.decoder().decode([theirs])
    assert decoded.batch.to_pylist() == [GOOD]
    written = for_topic(form, "purchases", "value").encoder(decoded.batch.schema).encode(decoded.batch)
    assert JSONDeserializer(json.dumps(SCHEMA))(written[0].as_py(), CONTEXT) == GOOD
    assert written[0].as_py()[:5] == theirs[:5]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (framed({**GOOD, "user": ""}), "at `$.user`, by its JSON Schema"),
        (framed({**GOOD, "place": {"x": 10}}), "at `$.place`"),
        (framed({**GOOD, "more": [True, 1]}), '1 is not of type "boolean" - at `$.more[1]`'),
        (framed({"amount": 1}), '"user" is a required property - at `$`'),
        (framed({"user": "ann"}), "missing required field `amount`"),
        (framed({"user": "ann"}, 8), '"amount" is a required property'),
        (framed(GOOD, 9), "there is no schema 9"),
        (b"\0\0\0\0\x07{", "truncated"),
        (json.dumps(GOOD).encode(), "the first byte is 0x7b, not 0x00 (plain JSON"),
        (b"\0", "less than its header's 5"),
        (None, "tombstone"),
    ],
)
def test_a_bad_value_is_bad_alone_and_its_path_is_told(value: bytes | None, said: str) -> None:
    form = Json(Purchase, registry={7: SCHEMA, 8: STRICT})
    decoded = form.decoder().decode([framed(GOOD), value, framed(GOOD, 8)])
    assert [bad.row for bad in decoded.bad] == [1]
    assert said.lower() in decoded.bad[0].reason.lower()
    assert decoded.rows is not None
    assert decoded.rows.tolist() == [0, 2]
    assert decoded.batch.to_pylist() == [GOOD, GOOD]


def test_values_are_not_compared_if_that_is_said() -> None:
    value = framed({**GOOD, "user": ""})
    assert Json(Purchase, registry={7: SCHEMA}, validate=False).decoder().decode([value]).batch.num_rows == 1
    assert Json(Purchase, registry={7: SCHEMA}, json_schema={}).decoder().decode([value]).batch.num_rows == 1


def test_plain_json_is_compared_with_a_schema_that_is_given() -> None:
    form = Json(Purchase, json_schema=json.dumps(STRICT))
    decoded = form.decoder().decode([json.dumps(GOOD).encode(), b'{"user":"","amount":1}'])
    assert [bad.row for bad in decoded.bad] == [1]
    rows = pa.RecordBatch.from_pylist([GOOD, {**GOOD, "amount": -1}], form.schema)
    with pytest.raises(
        EncodeError, match=r"row 1 of a batch is not what its JSON Schema says: -1 is less .*amount"
    ):
        form.encoder(rows.schema).encode(rows)


def test_a_schema_refers_to_others_and_nothing_is_fetched() -> None:
    place = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"place": {"$ref": "place.json"}}}
    reference = SchemaReference("place.json", "place-value", json.dumps(place))
    form = Json(Purchase, json_schema=schema, references=[reference])
    bad = form.decoder().decode([b'{"user":"a","amount":1,"place":{"x":"1"}}']).bad
    assert "`$.place.x`" in bad[0].reason
    with pytest.raises(OptionError, match=r"place\.json"):
        Json(Purchase, json_schema=schema)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Json(Purchase, json_schema="{"), "this is no JSON Schema"),
        (lambda: Json(Purchase, json_schema={"type": "nope"}), "this is no JSON Schema"),
        (lambda: Json(Purchase, subject="s"), "give registry=, too"),
        (lambda: Json(Purchase, registry={}), "leave it out for plain JSON"),
        (lambda: Json(Purchase, registry={"basic": 1}), 'has no "url"'),
        (lambda: Json(Purchase, references=[SchemaReference("a", "b", "{}")]), "give that, too"),
        (lambda: Json(Purchase, registry={7: {}}, subject_strategy="no"), "subject_strategy"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises((OptionError, GraphError)) as caught:
        make()
    assert said in str(caught.value)


@dataclass(frozen=True)
class Everything:
    a: int
    b: float | None
    c: list[Place | None]
    d: dict[str, bool]
    e: dt.datetime
    f: Annotated[Decimal, Scale(2)]
    g: tuple[int, str]
    h: Any


def test_the_schema_made_of_columns_is_one_for_what_is_written() -> None:
    form = Json(Everything)
    assert form.schema is not None
    text = json.dumps(schema_of_rows(form.schema, "Everything"))
    row = {
        "a": 1, "b": None, "c": [{"x": 1}, None], "d": [("k", True)], "e": dt.datetime.now(dt.UTC),
        "f": Decimal("1.50"), "g": {"f0": 1, "f1": "x"}, "h": '{"any": 1}',
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row], form.schema)
    value = form.encoder(form.schema).encode(batch)[0].as_py()
    assert JsonSchema(RegisteredSchema("JSON", text)).why_not(value) is None
    jsonschema.validate(json.loads(value), json.loads(text))
    for name in ("a", "c", "h"):
        less = {key: item for key, item in json.loads(value).items() if key != name}
        assert (JsonSchema(RegisteredSchema("JSON", text)).why_not(json.dumps(less).encode()) is None) == (
            name not in json.loads(text)["required"]
        )


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["user", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["user", "amount", "place", "more"]), VALUES))
def test_the_verdict_is_that_of_the_library_that_confluent_uses(value: dict[str, Any]) -> None:
    ours = JsonSchema(RegisteredSchema("JSON", json.dumps(SCHEMA))).why_not(json.dumps(value).encode())
    theirs = jsonschema.Draft7Validator(SCHEMA).is_valid(value)
    assert (ours is None) == theirs
