"""The main job's input: purchases as JSON, made from a seed and loaded into a topic.

Event time passes at 100,000 records per second over all partitions, out of order by up to 2 s, for
100,000 users; at the end each partition gets one closing record, two hours later.

    python scripts/purchases.py --bootstrap-servers 127.0.0.1:9092 --topic purchases --records 2000000
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from confluent_kafka import KafkaError, Message, Producer

START_MS = 1_700_000_000_000
RECORDS_PER_MS = 100
DISORDER_MS = 2_000
CLOSING_MS = 2 * 3_600_000
USERS = 100_000
_CHUNK = 100_000
_CHUNK_BYTES = 50_000_000
_USUAL_BYTES = 101


@dataclass(frozen=True, slots=True)
class Purchases:
    """`records` counts without the closing ones; `partitions` must be those of the topic.

    `record_bytes`: about how long each is; below the usual length the fields that no total needs are left
    out, above it the item's name is longer.
    """

    records: int
    partitions: int = 4
    users: int = USERS
    seed: int = 1
    record_bytes: int = _USUAL_BYTES

    @property
    def total(self) -> int:
        return self.records + self.partitions

    def window_rows(self, window_ms: int = 10_000) -> int:
        """About how many rows there will be, one per user and window: enough for a progress bar."""
        passed_ms = self.records / RECORDS_PER_MS
        windows = [min(window_ms, passed_ms - start) for start in range(0, int(passed_ms), window_ms)]
        seen = (self.users * (1 - math.exp(-length * RECORDS_PER_MS / self.users)) for length in windows)
        return int(sum(seen)) + self.partitions

    def chunks(self) -> Iterator[tuple[int, pl.Series]]:
        """Pieces of the topic, in order within each partition: the partition and the JSON texts."""
        chance = np.random.default_rng(self.seed)
        chunk = max(self.partitions, min(_CHUNK, _CHUNK_BYTES // self.record_bytes))
        for start in range(0, self.records, chunk):
            numbers = np.arange(start, min(start + chunk, self.records))
            late = chance.integers(0, DISORDER_MS, len(numbers))
            texts = self._texts(START_MS + DISORDER_MS + numbers // RECORDS_PER_MS - late, chance)
            for partition in range(self.partitions):
                yield partition, texts.gather_every(self.partitions, partition)
        for partition in range(self.partitions):
            closing = np.array([START_MS + self.records // RECORDS_PER_MS + CLOSING_MS])
            yield partition, self._texts(closing, chance)

    def _texts(self, ts: np.ndarray, chance: np.random.Generator) -> pl.Series:
        user = chance.integers(0, self.users, len(ts))
        amount = chance.integers(100, 100_000, len(ts))
        item = chance.integers(0, 10_000, len(ts))
        frame = pl.DataFrame({"user": user, "amount": amount, "ts": ts, "item": item})
        parts = [
            pl.lit('{"user":"u'),
            pl.col("user").cast(pl.String).str.zfill(7),
            pl.lit('","type":"purchase","amount":'),
            pl.col("amount"),
            pl.lit(',"ts":'),
            pl.col("ts"),
            pl.lit(',"item":"i'),
            pl.col("item").cast(pl.String).str.zfill(6),
            pl.lit("x" * max(0, self.record_bytes - _USUAL_BYTES) + '","ok":true}'),
        ]
        if self.record_bytes < _USUAL_BYTES:
            parts[2:] = [pl.lit('","amount":'), pl.col("amount"), pl.lit(',"ts":'), pl.col("ts"), pl.lit("}")]
        return frame.select(pl.concat_str(parts)).to_series()


def load(
    bootstrap_servers: str, topic: str, purchases: Purchases, on_progress: Callable[[int], None]
) -> None:
    """Write them all and wait until the broker has them. `on_progress` gets how many were handed over."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 3,  # errors: a broker that has just started is told of otherwise
            "enable.idempotence": True,  # or a retry would plant duplicates of its own
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 3 * _CHUNK,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
        }
    )
    done = 0
    for partition, texts in purchases.chunks():
        messages = [{"value": text} for text in texts.to_list()]
        while len(producer) > _CHUNK:
            producer.poll(0.05)
        queued = producer.produce_batch(topic, messages, partition=partition, on_delivery=on_delivery)
        assert queued == len(messages), "the producer's queue holds three chunks"
        done += queued
        on_progress(done)
    left = producer.flush(120)
    if left or failures:
        raise SystemExit(
            f"loading {topic} failed: {failures[0] if failures else f'{left} records not delivered'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", required=True, help="must exist")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    purchases = Purchases(options.records, options.partitions, seed=options.seed)
    load(options.bootstrap_servers, options.topic, purchases, lambda done: None)
    print(f"{purchases.total} records in {options.topic}")


if __name__ == "__main__":
    main()
