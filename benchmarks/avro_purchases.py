"""The main job's input as Avro in Confluent's wire format: what scripts/purchases.py makes, record by record.

python -m benchmarks.avro_purchases --bootstrap-servers 127.0.0.1:9092 --topic purchases-avro
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from benchmarks.jobs.avro_totals import PURCHASE, SCHEMAS
from benchmarks.workload import Purchases, load
from onceflow.connectors.formats import Avro

_COLUMNS = pl.Struct(
    {
        "user": pl.String,
        "type": pl.String,
        "amount": pl.Int64,
        "ts": pl.Int64,
        "item": pl.String,
        "ok": pl.Boolean,
    }
)


@dataclass(frozen=True, slots=True)
class AvroPurchases(Purchases):
    """The same purchases, as Avro values."""

    def chunks(self) -> Iterator[tuple[int, pl.Series]]:
        for partition, texts in Purchases.chunks(self):
            rows = texts.str.json_decode(_COLUMNS).struct.unnest().to_arrow().combine_chunks()
            (batch,) = rows.to_batches()
            values = Avro(PURCHASE, registry=SCHEMAS).encoder(batch.schema).encode(batch)
            yield partition, pl.Series(values, dtype=pl.Binary)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", required=True, help="must exist")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    options = parser.parse_args()
    purchases = AvroPurchases(options.records, options.partitions)
    load(options.bootstrap_servers, options.topic, purchases, lambda done: None)
    print(f"{purchases.total} records in {options.topic}")


if __name__ == "__main__":
    main()
