"""The formats of Kafka's keys and values: what they decode, what is bad, what they encode."""

import json as json_module
from dataclasses import dataclass

import pyarrow as pa
from google.protobuf.source_context_pb2 import SourceContext
from onceflow.connectors.formats import (
    Avro,
    BadValue,
    ChangelogFormat,
    CsvRow,
    Debezium,
    Decoded,
    Decoder,
    EncodeError,
    Encoder,
    Format,
    Json,
    PlacingEncoder,
    Protobuf,
    Raw,
    SchemaReference,
    Text,
    TopicFormat,
    Values,
    for_topic,
)
from onceflow.runtime.arrays.recycled_memory import RecycledMemory
from onceflow.runtime.records import RowKind


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int


def decoded(format: Format, values: Values) -> Decoded:
    decoder: Decoder = format.decoder()
    return decoder.decode(values)


json = decoded(
    Json(Purchase), [b'{"user": "ann", "amount": 5}', b'{"user": "ann"}', None]
)
assert json.batch.to_pylist() == [{"user": "ann", "amount": 5}]
assert [bad.row for bad in json.bad] == [1, 2]
assert isinstance(json.bad[0], BadValue)
assert decoded(Text("line"), [b"\xc3\xa9t\xc3\xa9"]).batch.to_pylist() == [
    {"line": "été"}
]
assert decoded(Raw(), [b"\x00", None]).batch.to_pylist() == [
    {"value": b"\x00"},
    {"value": None},
]

plain = Avro(Purchase, framing="none")
rows = pa.RecordBatch.from_pylist([{"user": "ann", "amount": 5}], plain.schema)
encoder: Encoder = plain.encoder(rows.schema)
assert decoded(plain, encoder.encode(rows)).batch.to_pylist() == rows.to_pylist()

# Protobuf: a class that protoc has written says what the columns are.
message = SourceContext(file_name="shop.proto")
context = decoded(
    Protobuf(SourceContext, framing="none"), [message.SerializeToString()]
)
assert context.batch.to_pylist() == [{"file_name": "shop.proto"}]

# An Avro schema that refers to another one, which is registered as "place-value".
place = {
    "type": "record",
    "name": "geo.Place",
    "fields": [{"name": "x", "type": "int"}],
}
trip = {
    "type": "record",
    "name": "Trip",
    "fields": [{"name": "to", "type": "geo.Place"}],
}
trips = Avro(
    trip,
    registry="http://localhost:8081",
    references=[SchemaReference("geo.Place", "place-value", json_module.dumps(place))],
)
assert trips.schema is not None
assert trips.schema.names == ["to"]

lines = decoded(CsvRow(Purchase), [b"ann,5", b'"bo, jr",6', b"ann,five"])
assert lines.batch.to_pylist() == [
    {"user": "ann", "amount": 5},
    {"user": "bo, jr", "amount": 6},
]
assert [bad.row for bad in lines.bad] == [2]

# Debezium: a change of a table is one row, or two.
change = b'{"before": {"user": "ann", "amount": 5}, "after": {"user": "ann", "amount": 6}, "op": "u"}'
assert isinstance(Debezium(Json(Purchase)), ChangelogFormat)
changes = decoded(Debezium(Json(Purchase)), [change])
assert changes.kinds is not None
assert changes.kinds.tolist() == [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]

# What a sink does: the subject of a registry is named by the topic, and rows are encoded in its order.
assert isinstance(Avro(Purchase, registry="http://localhost:8081"), TopicFormat)
of_topic = for_topic(Json(), "purchases", "value").encoder(rows.schema)
if isinstance(of_topic, PlacingEncoder):
    assert of_topic.encode_in_order(rows, None, RecycledMemory()).to_pylist() == [
        b'{"user":"ann","amount":5}'
    ]

try:
    Json().encoder(pa.schema([("x", pa.float64())])).encode(
        pa.RecordBatch.from_pylist([{"x": float("nan")}])
    )
except EncodeError as error:
    assert "x" in str(error)
