"""JSON decoding: the kernel against JsonDecoder, side by side in one process.

    python benchmarks/json_decode.py --records 10000 --rounds 15

Thousands of records per CPU-second of one thread, the medians of interleaved rounds, and their ratio.
Only the ratios travel. The main job's record is decoded into three and five columns; the others stress
one part each: text, floats, nested values that nobody wants, and odd values that the kernel leaves to
JsonDecoder. All of it comes as Arrow arrays.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from onceflow.connectors.formats import Decoder, Values
from onceflow.connectors.formats.json.bulk import BulkJsonDecoder
from onceflow.connectors.formats.json.strict import JsonDecoder


@dataclass(frozen=True, slots=True)
class Variant:
    """Values, and the columns that are wanted of them."""

    name: str
    columns: dict[str, pa.DataType]
    values: list[bytes]


def variants(count: int) -> list[Variant]:
    chance = random.Random(1)

    def values(make: Callable[[int], object]) -> list[bytes]:
        return [json.dumps(make(i), separators=(",", ":"), ensure_ascii=False).encode() for i in range(count)]

    def purchase(i: int) -> dict[str, object]:
        amount, item = chance.randrange(1, 10_000), f"item-{chance.randrange(1_000)}"
        user = f"u{chance.randrange(100_000):05d}"
        ts = 1_700_000_000_000 + i
        return {"user": user, "type": "purchase", "amount": amount, "ts": ts, "item": item, "ok": True}

    def article(_: int) -> dict[str, object]:
        words = [chance.choice(["stream", "état", "watermark", '"quoted"', "barrier"]) for _ in range(30)]
        return {"title": " ".join(words[:5]), "text": " ".join(words), "author": f"a{chance.randrange(50)}"}

    def reading(_: int) -> dict[str, object]:
        numbers = [chance.gauss(0, 1), round(chance.uniform(0, 100), 2), chance.random() * 1e-6]
        return dict(zip(["x", "y", "z"], numbers, strict=True))

    def nested(i: int) -> dict[str, object]:
        cart = [{"sku": f"s{j}", "price": 1.5, "tags": ["a", "b"]} for j in range(4)]
        return {"cart": cart, "user": f"u{i % 1000}", "geo": {"lat": 52.5, "lon": 13.4}, "amount": i}

    text, number, decimal = pa.string(), pa.int64(), pa.float64()
    three = {"user": text, "amount": number, "ts": number}
    purchases = values(purchase)
    twice = [value[:-1] + b',"amount":1}' for value in purchases]
    tenth = [twice[i] if i % 10 == 0 else value for i, value in enumerate(purchases)]
    return [
        Variant("main job, 3 columns", three, purchases),
        Variant("main job, 5 columns", {**three, "type": text, "ok": pa.bool_()}, purchases),
        Variant("text", {"title": text, "text": text}, values(article)),
        Variant("floats", {"x": decimal, "y": decimal, "z": decimal}, values(reading)),
        Variant("nested, not wanted", {"user": text, "amount": number}, values(nested)),
        Variant("main job, 1 odd", three, purchases[:-2] + twice[-2:-1] + purchases[-1:]),
        Variant("main job, 10 % odd", three, tenth),
        Variant("main job, all odd", three, twice),
    ]


def cpu_s(decoder: Decoder, values: Values) -> float:
    started = time.thread_time()
    decoder.decode(values)
    return time.thread_time() - started


def measure(variant: Variant, rounds: int) -> tuple[float, float]:
    """JsonDecoder and the kernel: median seconds."""
    schema = pa.schema([pa.field(name, arrow, nullable=False) for name, arrow in variant.columns.items()])
    judge = JsonDecoder(schema, None, "error")
    bulk = BulkJsonDecoder(judge, None)
    array = pa.array(variant.values, pa.binary())
    assert bulk.decode(array).batch.equals(judge.decode(variant.values).batch)
    runs = [(cpu_s(judge, array), cpu_s(bulk, array)) for _ in range(rounds)]
    slow, quick = zip(*runs, strict=True)
    return statistics.median(slow), statistics.median(quick)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000, help="in a batch")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    table = Table("variant", "bytes", "JsonDecoder k/s", "kernel k/s", "ratio")
    for variant in variants(options.records):
        slow, kernel = measure(variant, options.rounds)
        size = sum(map(len, variant.values)) // len(variant.values)
        rates = [f"{options.records / seconds / 1000:,.0f}" for seconds in (slow, kernel)]
        table.add_row(variant.name, str(size), *rates, f"{slow / kernel:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
