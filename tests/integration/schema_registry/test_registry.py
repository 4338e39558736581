"""Kafka to Kafka with Avro and Protobuf through a real registry; the other side of each topic is Confluent's
own code."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from onceflow.connectors import formats
from onceflow.connectors.formats import Avro, Json, Protobuf, for_topic
from onceflow.runtime.errors import Fatal
from tests.protobuf_messages import descriptor_set, message_class

START_MS = 1_700_000_000_000
FIRST = {
    "type": "record",
    "name": "Purchase",
    "namespace": "shop",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "int"},
        {"name": "ts", "type": "long"},
    ],
}
SECOND = {
    **FIRST,
    "fields": [
        *FIRST["fields"],
        {"name": "shop", "type": "string", "default": "none"},
        {"name": "lines", "type": {"type": "array", "items": "string"}, "default": []},
    ],
}


def client_of(registry: str) -> SchemaRegistryClient:
    """Confluent's own client. Unless it is told otherwise it waits for an answer for ever."""
    return SchemaRegistryClient({"url": registry, "timeout": 10, "max.retries": 5})


def produce(servers: str, registry: str, topic: str) -> Counter[tuple[str, str, int]]:
    """Purchases of both schemas, and one value that is no Avro; the totals that are to come out."""
    client, chance = client_of(registry), random.Random(3)
    context = SerializationContext(topic, MessageField.VALUE)
    first, second = (AvroSerializer(client, json.dumps(schema)) for schema in (FIRST, SECOND))
    producer = Producer(
        {"bootstrap.servers": servers, "log_level": 0, "enable.idempotence": True, "linger.ms": 20}
    )
    totals: Counter[tuple[str, str, int]] = Counter()
    for i in range(6_000):
        record = {
            "user": f"u{chance.randrange(50)}",
            "amount": chance.randrange(1, 5_000),
            "ts": START_MS + i,
        }
        shop = "none"
        if i % 3 == 0:
            shop = f"s{i % 2}"
            value = second({**record, "shop": shop, "lines": ["a", "b"]}, context)
        else:
            value = first(record, context)
        window_end = (record["ts"] // 1_000 + 1) * 1_000
        totals[record["user"], shop, window_end] += record["amount"]
        producer.produce(topic, value, partition=i % 2)
    producer.produce(topic, b'{"user":"u1"}', partition=0)
    assert producer.flush(60) == 0
    return totals


@pytest.mark.kafka
@pytest.mark.parametrize("host", ["threads[2]", pytest.param("local[2]", marks=pytest.mark.spark)])
def test_a_job_reads_and_writes_what_confluents_serializers_write_and_read(
    host: str, start_job: Any, engine: Any, broker: Any, new_topic: Any, registry: str, tmp_path: Path
) -> None:
    servers, source, output, dead = (
        broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2), new_topic("dead", 1)
    )  # fmt: skip
    expected = produce(servers, registry, source)
    arguments = ("--bootstrap-servers", servers, "--registry", registry, "--input", source)
    job = start_job(
        tmp_path / "ck",
        *(*arguments, "--output", output, "--dead-letters", dead, "--window", "1 s", "--until", "latest"),
        program=engine.jobs.parents[2] / "examples" / "avro_totals.py",
        master=host,
    )
    assert job.wait(240) == 0, job.story()
    client = client_of(registry)
    read = AvroDeserializer(client)
    context = SerializationContext(output, MessageField.VALUE)
    rows: Any = [read(value, context) for value in engine.read_topic(servers, output)]
    assert Counter({(r["user"], r["shop"], r["window_end"]): r["total"] for r in rows}) == expected
    assert len(rows) == len(expected)
    assert engine.read_topic(servers, dead) == [b'{"user":"u1"}']
    registered = json.loads(client.get_latest_version(f"{output}-value").schema.schema_str or "")
    assert (registered["namespace"], registered["name"]) == ("shop", "Total")


@pytest.mark.kafka
def test_a_job_reads_and_writes_the_messages_of_confluents_protobuf(
    start_job: Any, engine: Any, broker: Any, new_topic: Any, registry: str, tmp_path: Path
) -> None:
    servers, source, output, dead = (
        broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2), new_topic("dead", 1)
    )  # fmt: skip
    examples = engine.jobs.parents[2] / "examples"
    files = ("shop.proto", (examples / "shop.proto").read_text())
    messages = tmp_path / "shop.binpb"
    messages.write_bytes(descriptor_set(files))
    purchase, total = (message_class(name, files) for name in ("shop.Purchase", "shop.Total"))
    client, producer = client_of(registry), Producer({"bootstrap.servers": servers, "log_level": 0})
    write = ProtobufSerializer(purchase, client, {})
    wrong = ProtobufSerializer(total, client, {"subject.name.strategy": lambda *_: "other"})
    context = SerializationContext(source, MessageField.VALUE)
    expected: Counter[tuple[str, int]] = Counter()
    for i in range(2_000):
        ms = START_MS + i
        made = purchase(user=f"u{i % 7}", amount=i, ts={"seconds": ms // 1_000, "nanos": ms % 1_000 * 10**6})
        expected[made.user, (ms // 1_000 + 1) * 1_000] += i
        producer.produce(source, write(made, context), partition=i % 2)
    strange = wrong(total(user="u1", total=7), context)
    producer.produce(source, strange, partition=0)
    assert producer.flush(60) == 0
    arguments = ("--bootstrap-servers", servers, "--registry", registry, "--input", source)
    job = start_job(
        tmp_path / "ck",
        *(*arguments, "--output", output, "--dead-letters", dead, "--window", "1 s", "--until", "latest"),
        *("--messages", str(messages)),
        program=examples / "protobuf_totals.py",
        master="threads[2]",
    )
    assert job.wait(240) == 0, job.story()
    read, context = ProtobufDeserializer(total, {}), SerializationContext(output, MessageField.VALUE)
    rows: Any = [read(value, context) for value in engine.read_topic(servers, output)]
    assert Counter({(r.user, r.window_end): r.total for r in rows}) == expected
    assert len(rows) == len(expected)
    assert engine.read_topic(servers, dead) == [strange]  # another message of the same schema


def test_what_a_message_imports_is_registered_and_referred_to(registry: str) -> None:
    place = ("geo/place.proto", 'syntax = "proto3"; package geo; message Place { double x = 1; }')
    trip = (
        "trip.proto",
        'syntax = "proto3"; import "geo/place.proto"; message Stop { int32 x = 1; } '
        "message Trip { geo.Place to = 1; }",
    )
    of, client = message_class("Trip", trip, place), client_of(registry)
    form = for_topic(Protobuf(of, registry=registry), "trips", "value")
    rows = form.decoder().decode([])
    rows = pa.RecordBatch.from_pylist([{"to": {"x": 0.5}}], rows.batch.schema)
    lookup = Protobuf(of, registry=registry, auto_register=False, subject="trips-value").encoder(rows.schema)
    with pytest.raises(Fatal, match=r"geo/place\.proto"):
        lookup.encode(rows)
    written = form.encoder(rows.schema).encode(rows)
    theirs = ProtobufSerializer(of, client, {})(
        of(to={"x": 0.5}), SerializationContext("trips", MessageField.VALUE)
    )
    assert written.to_pylist() == [theirs]
    assert lookup.encode(rows).equals(written)
    assert form.decoder().decode(written).batch == rows
    registered = client.get_schema(int.from_bytes(theirs[1:5], "big"))
    assert registered.references == [SchemaReference("geo/place.proto", "geo/place.proto", 1)]


def test_json_schema_through_the_registry(registry: str) -> None:
    place = {"$id": "place.json", "type": "object", "properties": {"x": {"type": "integer"}}}
    trip = {"title": "Trip", "type": "object", "properties": {"to": {"$ref": "place.json"}}}
    reference = formats.SchemaReference("place.json", "place-json", json.dumps(place))
    client, context = client_of(registry), SerializationContext("json-trips", MessageField.VALUE)
    columns = pa.schema([("to", pa.struct([pa.field("x", pa.int64())]))])
    form = for_topic(
        Json(columns, registry=registry, json_schema=trip, references=[reference]), "json-trips", "value"
    )
    rows = pa.RecordBatch.from_pylist([{"to": {"x": 5}}], columns)
    written = form.encoder(columns).encode(rows).to_pylist()
    assert JSONDeserializer(None, schema_registry_client=client)(written[0], context) == {"to": {"x": 5}}
    ours = Json(columns, registry=registry).decoder()  # compares with the schema that was written
    bad = written[0][:5] + b'{"to":{"x":"5"}}'
    decoded = ours.decode([written[0], bad])
    assert decoded.batch == rows
    assert "at `$.to.x`" in decoded.bad[0].reason
    derived = for_topic(Json(registry=registry, name="Trip"), "json-derived", "value")
    value = derived.encoder(columns).encode(rows)[0].as_py()
    assert JSONDeserializer(None, schema_registry_client=client)(value, context) == {"to": {"x": 5}}
    client.set_compatibility("json-derived-value", "BACKWARD")
    wider = pa.schema([*columns, pa.field("n", pa.int64(), False)])
    with pytest.raises(Fatal, match=r"rule BACKWARD .* the field 'n' is new and is required"):
        derived.encoder(wider).encode(pa.RecordBatch.from_pylist([{"to": None, "n": 1}], wider))


def test_an_id_that_nobody_registered_is_a_bad_record(registry: str) -> None:
    decoded = (
        Avro(pa.schema([("x", pa.int64())]), registry=registry).decoder().decode([b"\0\0\x0f\xff\xff\x02"])
    )
    assert "there is no schema 1048575" in decoded.bad[0].reason
    assert "40403" in decoded.bad[0].reason


def test_a_schema_that_refers_to_another_subject_is_put_together(registry: str) -> None:
    client = client_of(registry)
    place = {"type": "record", "name": "Place", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}
    client.register_schema("place", Schema(json.dumps(place), "AVRO"))
    outer = {"type": "record", "name": "Trip", "fields": [{"name": "to", "type": "geo.Place"}]}
    reference = SchemaReference("geo.Place", "place", 1)
    schema_id = client.register_schema("trip", Schema(json.dumps(outer), "AVRO", [reference]))
    wanted = pa.schema([("to", pa.struct([("x", pa.int64())]))])
    decoded = (
        Avro(wanted, registry=registry).decoder().decode([b"\0" + schema_id.to_bytes(4, "big") + b"\x0a"])
    )
    assert decoded.batch.to_pylist() == [{"to": {"x": 5}}]


def test_a_schema_is_only_looked_up_if_that_is_said(registry: str) -> None:
    rows = pa.RecordBatch.from_pylist([{"x": 1}])
    said = Avro(registry=registry, auto_register=False, name="Looked")
    with pytest.raises(Fatal, match="looked-value"):
        for_topic(said, "looked", "value").encoder(rows.schema).encode(rows)
    registering = for_topic(Avro(registry=registry, name="Looked"), "looked", "value")
    written = registering.encoder(rows.schema).encode(rows)
    assert for_topic(said, "looked", "value").encoder(rows.schema).encode(rows).equals(written)


def test_a_schema_that_would_break_readers_is_refused_by_the_registry(registry: str) -> None:
    client = client_of(registry)
    client.register_schema("strict", Schema(json.dumps(FIRST), "AVRO"))
    client.set_compatibility("strict", "BACKWARD")
    rows = pa.RecordBatch.from_pylist([{"other": 1}], pa.schema([pa.field("other", pa.int64(), False)]))
    encoder = Avro(registry=registry, subject="strict", name="shop.Purchase").encoder(rows.schema)
    with pytest.raises(Fatal) as caught:
        encoder.encode(rows)
    assert (
        "refuses the schema of the rows for the subject 'strict' by its rule BACKWARD (the new schema must "
        "read what was written with the old one): compared with the latest, version 1, the field 'other' is "
        "new and has no default. It says: "
    ) in str(caught.value)


def test_a_given_schema_refers_to_one_of_another_subject(registry: str) -> None:
    point = {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "int"}]}
    route = {"type": "record", "name": "Route", "fields": [{"name": "to", "type": "geo.Point"}]}
    reference = formats.SchemaReference("geo.Point", "point", json.dumps(point))
    form = Avro(route, registry=registry, subject="route", references=[reference])
    rows = pa.RecordBatch.from_pylist([{"to": {"x": 5}}], form.schema)
    written = form.encoder(rows.schema).encode(rows)
    read = AvroDeserializer(client_of(registry))
    assert read(written[0].as_py(), SerializationContext("routes", MessageField.VALUE)) == {"to": {"x": 5}}
    assert form.decoder().decode(written).batch.to_pylist() == [{"to": {"x": 5}}]


@pytest.mark.kafka
def test_the_broker_command_writes_and_prints_avro(registry: str, broker: Any, new_topic: Any) -> None:
    """JSON lines go in by the latest schema of the subject, and come out as they were."""
    topic = new_topic("avro-lines", 1)
    record = {"user": "ann", "amount": 7, "ts": START_MS}
    where = ["--registry", registry, "--bootstrap-servers", broker.bootstrap_servers]
    command = [str(Path(sys.executable).with_name("onceflow")), "broker"]

    def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        whole = [*command, *arguments, *where]
        return subprocess.run(whole, input=given, capture_output=True, text=True, check=False, timeout=480)

    early = run("produce", topic, given=json.dumps(record) + "\n")
    assert f"no schema is registered as {topic}-value at {registry}: give one with --schema" in early.stderr
    client_of(registry).register_schema(f"{topic}-value", Schema(json.dumps(FIRST), "AVRO"))
    written = run("produce", topic, given=json.dumps(record) + "\n")
    assert written.stderr == f"{topic}: 1 records written\n"
    assert json.loads(run("consume", topic, "--format", "values").stdout) == record
    wrong = run("produce", topic, given='{"user": "ann"}\n')
    assert (wrong.returncode, "line 1 can't be written by the schema" in wrong.stderr) == (2, True)


@pytest.mark.kafka
def test_the_broker_command_registers_a_schema_and_writes_by_it(
    registry: str, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """Instants, decimals and bytes come out as text, and what is printed goes in again."""
    topic, file = new_topic("avro-schema", 1), tmp_path / "order.avsc"
    kinds = {
        "id": "string",
        "at": ("long", "timestamp-millis"),
        "price": ("bytes", "decimal"),
        "raw": "bytes",
    }
    fields = [
        {"name": name, "type": kind}
        if isinstance(kind, str)
        else {"name": name, "type": {"type": kind[0], "logicalType": kind[1], "precision": 9, "scale": 2}}
        for name, kind in kinds.items()
    ]
    file.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    order = {"id": "a", "at": "2026-11-27T10:00:00.500Z", "price": "1.50", "raw": "\u00ff"}
    where = ["--registry", registry, "--bootstrap-servers", broker.bootstrap_servers]
    command = [str(Path(sys.executable).with_name("onceflow")), "broker"]

    def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        whole = [*command, *arguments, *where]
        return subprocess.run(whole, input=given, capture_output=True, text=True, check=False, timeout=480)

    written = run(
        "produce", topic, "--schema", str(file), "--key-field", "id", given=json.dumps(order) + "\n"
    )
    assert (written.returncode, written.stderr) == (0, f"{topic}: 1 records written\n")
    printed = run("consume", topic).stdout
    assert json.loads(printed)["value"] == {**order, "at": "2026-11-27T10:00:00.500000Z"}
    again = run("produce", topic, "--json", "--subject", f"{topic}-value", given=printed)
    assert again.returncode == 0, again.stderr
    values = run("consume", topic, "--format", "values").stdout.splitlines()
    assert (len(values), len(set(values))) == (2, 1)
    file.write_text('{"type": "record"}')
    wrong = run("produce", topic, "--schema", str(file), given="{}\n")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert f"--schema {file}: this is no Avro schema" in wrong.stderr


@pytest.mark.kafka
def test_the_auditor_reads_avro(broker: Any, new_topic: Any, registry: str, onceflow: Any) -> None:
    """Input in Avro with an instant and a decimal, output half in Avro and half in JSON; one total is wrong,
    and one value has an id that no schema has."""
    decimal_2 = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    instant = {"type": "long", "logicalType": "timestamp-millis"}
    schemas = [
        {"name": name, "type": "record", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
        for name, fields in (
            ("Sale", {"user": "string", "amount": decimal_2, "ts": instant}),
            ("Total", {"user": "string", "window_end": instant, "count": "long", "total": decimal_2}),
        )
    ]
    client, servers = client_of(registry), broker.bootstrap_servers
    sale, total = (AvroSerializer(client, json.dumps(schema)) for schema in schemas)
    source, output = new_topic("in", 2), new_topic("out", 1)
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    start, cent = dt.datetime.fromtimestamp(START_MS / 1000, dt.UTC), decimal.Decimal("0.01")
    for i in range(40):
        row = {"user": f"u{i % 4}", "amount": i * cent, "ts": start + dt.timedelta(milliseconds=i)}
        producer.produce(source, sale(row, SerializationContext(source, MessageField.VALUE)), partition=i % 2)
    for user in range(4):
        amount, end = sum(range(user, 40, 4)), start + dt.timedelta(seconds=1)
        row = {"user": f"u{user}", "window_end": end, "count": 10, "total": amount * cent}
        if user == 3:
            row["total"] += cent
        value = total(row, SerializationContext(output, MessageField.VALUE))
        if user % 2:
            plain = {**row, "window_end": START_MS + 1_000, "total": float(row["total"])}
            value = json.dumps(plain).encode()
        producer.produce(output, value)
    producer.produce(output, b"\0" + (999_999).to_bytes(4, "big") + b"\0")
    assert producer.flush(60) == 0

    def verify(url: str) -> subprocess.CompletedProcess[str]:
        what = ("--input", source, "--output", output, "--group-by", "user", "--window", "1 s")
        fields = ("--count", "count", "--sum", "total=amount", "--registry", url)
        return onceflow("verify", "--json", "--bootstrap-servers", servers, *what, *fields, timeout=480)

    done = verify(registry)
    assert (done.returncode, bool(done.stdout)) == (1, True), done.stderr
    report = json.loads(done.stdout)
    counts = {kind: report[kind] for kind in ("missing", "doubled", "wrong", "unreadable")}
    assert counts == {"missing": 0, "doubled": 0, "wrong": 1, "unreadable": 1}, report
    assert report["samples"]["wrong"][0]["user"] == "u3"
    assert "no Avro by the registry" in report["samples"]["unreadable"][0]["reason"]
    away = verify("http://127.0.0.1:9")
    assert (away.returncode, away.stdout) == (1, "")
    assert f"{source}-0, offset 0: the schema registry at http://127.0.0.1:9 can't be asked" in away.stderr
