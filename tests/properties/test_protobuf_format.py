"""Protobuf against Google's own library and Confluent's own clients, on good and on hostile bytes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.connectors.formats import Protobuf
from onceflow.connectors.formats.protobuf.decode import ProtobufDecoder
from tests.protobuf_messages import message_class

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message Other { int32 x = 1; }
message Place { int32 x = 1; repeated Place.Stop stops = 2; message Stop { string name = 1; } }
enum Color { NONE = 0; RED = 1; BLUE = 7; }
message Row {
  double a = 1; float b = 2; int32 c = 3; int64 d = 4; uint32 e = 5; uint64 f = 6; sint32 g = 7; sint64 h = 8;
  fixed32 i = 9; fixed64 j = 10; sfixed32 k = 11; sfixed64 l = 12; bool m = 13; string n = 14; bytes o = 15;
  Color color = 16; optional int64 maybe = 17; optional string text = 18; Place place = 19;
  repeated sint64 numbers = 20; repeated Place places = 21; repeated Color colors = 22;
  map<string, int64> counts = 23; map<int32, Place> by_number = 24; map<bool, Color> by_flag = 25;
  google.protobuf.Timestamp at = 26; google.protobuf.Duration took = 27;
  google.protobuf.Int64Value wrapped = 28; google.protobuf.StringValue note = 29;
  oneof outcome { string refused = 30; int32 paid = 31; Place moved = 32; }
  repeated google.protobuf.Timestamp times = 33; string from = 34; optional bool None = 35;
  map<string, google.protobuf.Duration> spans = 36;
}
"""
ROW = message_class("shop.Row", ("shop.proto", PROTO))
FORMAT = Protobuf(ROW, framing="none")
FIELDS = ROW.DESCRIPTOR.fields_by_name
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


# --- Messages -------------------------------------------------------------------------------------


def integers(bits: int, is_signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return st.one_of(st.integers(low, high), st.sampled_from([0, 1, low, high]))


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
COLORS = st.sampled_from([0, 1, 7])
PLACES = st.builds(
    lambda x, stops: {"x": x, "stops": [{"name": name} for name in stops]},
    integers(32, True),
    st.lists(TEXTS, max_size=2),
)
MICROSECONDS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a": st.floats(),
    "b": st.floats(width=32),
    "m": st.booleans(),
    "n": TEXTS,
    "o": st.binary(max_size=6),
    "color": COLORS,
    "maybe": integers(64, True),
    "text": TEXTS,
    "place": PLACES,
    "numbers": st.lists(integers(64, True), max_size=3),
    "places": st.lists(PLACES, max_size=3),
    "colors": st.lists(COLORS, max_size=3),
    "counts": st.dictionaries(TEXTS, integers(64, True), max_size=3),
    "by_number": st.dictionaries(integers(32, True), PLACES, max_size=3),
    "by_flag": st.dictionaries(st.booleans(), COLORS, max_size=2),
    "at": MICROSECONDS.map(lambda us: dict(zip(("seconds", "nanos"), _parts(us), strict=True))),
    "took": st.integers(-(10**15), 10**15).map(lambda us: _span(us)),
    "wrapped": integers(64, True).map(lambda value: {"value": value}),
    "note": TEXTS.map(lambda value: {"value": value}),
    "times": st.lists(
        MICROSECONDS.map(lambda us: dict(zip(("seconds", "nanos"), _parts(us), strict=True))), max_size=2
    ),
    "from": TEXTS,
    "None": st.booleans(),
    "spans": st.dictionaries(TEXTS, st.integers(-(10**15), 10**15).map(lambda us: _span(us)), max_size=2),
    **{name: integers(32, name not in "ei") for name in "ceigk"},
    **{name: integers(64, name not in "fj") for name in "dfhjl"},
}
OUTCOMES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    TEXTS.map(lambda text: {"refused": text}),
    integers(32, True).map(lambda number: {"paid": number}),
    PLACES.map(lambda place: {"moved": place}),
)
MESSAGES = st.builds(
    lambda values, outcome: ROW(**values, **outcome), st.fixed_dictionaries({}, optional=VALUES), OUTCOMES
)


def _parts(us: int) -> tuple[int, int]:
    seconds, rest = divmod(us, 1_000_000)
    return seconds, rest * 1_000


def _span(us: int) -> dict[str, int]:
    sign = -1 if us < 0 else 1
    seconds, rest = divmod(abs(us), 1_000_000)
    return {"seconds": sign * seconds, "nanos": sign * rest * 1_000}


def plain(message: Any) -> dict[str, Any]:
    """The message's row, in the simplest way: field by field, by the names of the library's own classes."""
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            of = entry.fields_by_name["value"]
            row[field.name] = [(k, plain_value(of, v)) for k, v in sorted(dict(value).items())]
        elif field.is_repeated:
            row[field.name] = [plain_value(field, item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = plain_value(field, value)
    return row


def plain_value(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if field.message_type is None:
        return value
    name = field.message_type.name
    if name == "Timestamp":
        return EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
    if name == "Duration":
        return dt.timedelta(seconds=value.seconds, microseconds=int(value.nanos / 1_000))
    return value.value if name.endswith("Value") else plain(value)


def same(left: Any, right: Any) -> bool:
    """Whether two rows are equal; NaN is itself, and UTC has several classes."""
    return repr(_shown(left)) == repr(_shown(right))


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_shown, value))
    return value.isoformat() if isinstance(value, dt.datetime) else value


# --- Reading and writing --------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.lists(MESSAGES, max_size=4))
def test_rows_are_what_the_library_says_and_are_written_as_its_messages(messages: list[Any]) -> None:
    decoded = FORMAT.decoder().decode([message.SerializeToString() for message in messages])
    assert not decoded.bad
    rows = decoded.batch.to_pylist()
    assert same(rows, [plain(message) for message in messages])
    written = FORMAT.encoder(decoded.batch.schema).encode(decoded.batch).to_pylist()
    assert written == [message.SerializeToString(deterministic=True) for message in messages]


@settings(max_examples=150)
@given(st.lists(st.one_of(MESSAGES.map(lambda m: m.SerializeToString()), st.binary(max_size=30)), max_size=5))
@example([b"", b"\x07", b"\x80\x01\x03", b"\x82\x01\x00", b"\xd2\x01\x02\x10\x01"])
def test_a_bad_value_is_bad_alone(values: list[bytes]) -> None:
    """Each value is judged as if it came alone, and what comes out of the good ones is the same."""
    together = FORMAT.decoder().decode(values)
    rows: list[Any] = []
    bad: list[int] = []
    for i, value in enumerate(values):
        alone = FORMAT.decoder().decode([value])
        try:
            row = plain(ROW.FromString(value))
        except (DecodeError, KeyError, OverflowError):  # no message; an unknown enum; no time
            assert alone.bad
        else:
            assert alone.bad or same(alone.batch.to_pylist(), [row])
        bad += [i] * len(alone.bad)
        rows += alone.batch.to_pylist()
    assert [each.row for each in together.bad] == bad
    assert same(together.batch.to_pylist(), rows)
    good = [i for i in range(len(values)) if i not in bad]
    assert (list(range(len(values))) if together.rows is None else together.rows.tolist()) == good


@settings(max_examples=30)
@given(MESSAGES, st.sets(st.sampled_from(sorted(FIELDS)), max_size=4))
def test_some_columns_are_the_same_as_all(message: Any, names: set[str]) -> None:
    value = message.SerializeToString()
    some = FORMAT.decoder(frozenset(names)).decode([value]).batch
    every = FORMAT.decoder().decode([value]).batch
    assert some.num_rows == 1
    assert same(some.to_pylist(), every.select([n for n in every.schema.names if n in names]).to_pylist())


# --- Confluent's clients --------------------------------------------------------------------------

CONTEXT = SerializationContext("rows", MessageField.VALUE)


@pytest.fixture(scope="module")
def client() -> Any:
    """Confluent's registry in memory."""
    return SchemaRegistryClient.new_client({"url": "mock://protobuf"})


@pytest.mark.parametrize("name", ["shop.Other", "shop.Row", "shop.Place.Stop"])
def test_confluents_clients_and_ours_read_what_the_other_writes(client: Any, name: str) -> None:
    of = message_class(name, ("shop.proto", PROTO))
    field = {"shop.Other": {"x": -3}, "shop.Row": {"n": "é", "c": 5}, "shop.Place.Stop": {"name": "é"}}[name]
    theirs = ProtobufSerializer(of, client, {"use.deprecated.format": False})(of(**field), CONTEXT)
    schema_id = int.from_bytes(theirs[1:5], "big")
    ours = Protobuf(of, registry={schema_id: client.get_schema(schema_id).schema_str}, subject="rows-value")
    decoded = ours.decoder().decode([theirs])
    assert not decoded.bad
    assert same(decoded.batch.to_pylist(), [plain(of(**field))])
    written = ours.encoder(decoded.batch.schema).encode(decoded.batch).to_pylist()
    assert written == [theirs]
    read = ProtobufDeserializer(of, {"use.deprecated.format": False})(written[0], CONTEXT)
    assert json_format.MessageToDict(read) == json_format.MessageToDict(of(**field))


def test_decoders_need_no_class_of_the_users() -> None:
    """What a slot gets is data: a file of descriptors and a name."""
    assert isinstance(FORMAT.message.files, bytes)
    assert isinstance(ProtobufDecoder(FORMAT.message, pa.schema([]), None, "error").schema, pa.Schema)
