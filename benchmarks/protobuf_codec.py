"""Protobuf with a registry: this package and Confluent's own (de)serializer, side by side in one process.

python -m benchmarks.protobuf_codec --records 200000 --rounds 5

A record is a shop.Purchase of examples/shop.proto in Confluent's wire format. Ours gives and takes columns;
Confluent's gives a message of Google's library for each record, and takes one, which is made of Python values
first. In turns, in one thread, by the CPU's clock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from grpc_tools import protoc

from onceflow.connectors.formats import Protobuf, for_topic

ROOT = Path(__file__).resolve().parent.parent
BATCH = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    form, of = described()
    client = SchemaRegistryClient.new_client({"url": "mock://bench"})
    context = SerializationContext("purchases", MessageField.VALUE)
    write, read = ProtobufSerializer(of, client, {}), ProtobufDeserializer(of, {})
    rows: list[dict[str, Any]] = [
        {
            "user": f"u{i % 10_000}",
            "amount": i,
            "ts": {"seconds": 1_700_000_000 + i, "nanos": i},
            "shop": f"s{i % 100}",
        }
        for i in range(options.records)
    ]
    values = [write(of(**row), context) for row in rows]
    schema_id = int.from_bytes(values[0][1:5], "big")
    ours: Any = for_topic(form(client.get_schema(schema_id).schema_str, schema_id), "purchases", "value")
    decoder = ours.decoder()
    parts = [values[i : i + BATCH] for i in range(0, len(values), BATCH)]
    batches = [decoder.decode(part).batch for part in parts]
    encoder = ours.encoder(batches[0].schema)
    runs: dict[str, Callable[[], object]] = {
        "decode, onceflow (columns)": lambda: [decoder.decode(part) for part in parts],
        "decode, Confluent (messages)": lambda: [read(value, context) for value in values],
        "encode, onceflow (of columns)": lambda: [encoder.encode(batch) for batch in batches],
        "encode, Confluent (of values)": lambda: [write(of(**row), context) for row in rows],
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            rates[name].append(options.records / (time.process_time() - begin) / 1_000)
    for name, found in rates.items():
        middle = statistics.median(found)
        print(f"{name:32} {middle:8,.0f} k records per CPU-second ({min(found):,.0f}-{max(found):,.0f})")


def described() -> tuple[Callable[[str, int], Protobuf], Any]:
    """What makes the format for a schema of the registry, and the class of the messages."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "shop.binpb"
        google = Path(protoc.__file__).parent / "_proto"
        paths = [f"-I{ROOT / 'examples'}", f"-I{google}", "--include_imports", f"--descriptor_set_out={out}"]
        assert protoc.main(["protoc", *paths, "shop.proto"]) == 0
        plain = Protobuf(out, name="shop.Purchase", framing="none")
    return lambda text, schema_id: Protobuf(plain.message, registry={schema_id: text}), (
        plain.message.message_class
    )


if __name__ == "__main__":
    main()
