"""The keyed part of the main job on one core: hash, partition, window update, fire, snapshot, restore.

    python benchmarks/keyed_state.py --keys 1000 100000 1000000

The stream of the main job without Kafka and JSON: batches of 10,000 rows, 100,000 rows per second of
event time, disorder up to 2 s, 10 s windows with count and sum. Rates are per CPU-second of this
process; new keys, growth and compaction are in the update. The longest update is the longest pause that
a batch sees. Prints one JSON object per number of keys.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.operators.aggregates import count, sum_
from onceflow.runtime.operators.operator import Operator, OperatorContext
from onceflow.runtime.operators.tumbling import tumbling
from onceflow.runtime.operators.window import WindowAggregate
from onceflow.runtime.records import WATERMARK_MAX_MS, Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.testing.harness import Collected, stored

BATCH_ROWS = 10_000
ROWS_PER_MS = 100
DISORDER_MS = 2_000
MAX_PARALLELISM = 128
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("ts", pa.int64())])
WINDOW = WindowAggregate(
    "totals", ("user",), tumbling("10 s"), {"n": count(), "total": sum_("amount")}, SCHEMA
)


class Timer:
    """CPU time by step, and the longest single call of each."""

    def __init__(self) -> None:
        self.total_s: dict[str, float] = {}
        self.longest_ms: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.process_time()
        yield
        took = time.process_time() - started
        self.total_s[name] = self.total_s.get(name, 0.0) + took
        self.longest_ms[name] = max(self.longest_ms.get(name, 0.0), took * 1e3)


def batches(keys: int, rows: int) -> Iterator[Records]:
    rng = np.random.default_rng(511)
    users = np.array([f"u{i:07d}" for i in range(keys)])
    start = 1_700_000_000_000
    for first in range(0, rows, BATCH_ROWS):
        ts = start + (first + np.arange(BATCH_ROWS)) // ROWS_PER_MS - rng.integers(0, DISORDER_MS, BATCH_ROWS)
        columns = [
            pa.array(users[rng.integers(0, keys, BATCH_ROWS)]),
            pa.array(rng.integers(0, 100_000, BATCH_ROWS)),
        ]
        yield Records(pa.RecordBatch.from_arrays([*columns, pa.array(ts)], schema=SCHEMA), ts)


def opened() -> tuple[Operator, Collected]:
    operator, out = WINDOW.create(), Collected()
    context = OperatorContext("totals", 0, 1, MAX_PARALLELISM, range(MAX_PARALLELISM), ManualClock())
    operator.open(context, out)
    return operator, out


def measure(keys: int, rows: int) -> dict[str, float]:
    timer, partitioner = Timer(), Partitioner(("user",), MAX_PARALLELISM, 2)
    operator, out = opened()
    for number, records in enumerate(batches(keys, rows)):
        with timer.step("hash"):
            key_hash = hash_keys(records.batch, ["user"])
        with timer.step("hash_and_partition"):
            parts = list(partitioner.split(records))
        assert sum(len(part) for _, part in parts) == BATCH_ROWS
        with timer.step("update"):
            operator.on_records(Records(records.batch, records.event_time, key_hash))
        assert records.event_time is not None
        with timer.step("fire"):
            operator.on_watermark(int(records.event_time.max()) - DISORDER_MS - 1)
        if number == rows // BATCH_ROWS - 1:
            with timer.step("snapshot_sync"):
                state = operator.snapshot()
            assert state is not None
            with timer.step("snapshot_table"):
                entries = state.tables["windows"].num_rows
            restored, _ = opened()
            read_back = stored(state)
            with timer.step("restore"):
                restored.restore([read_back])
    with timer.step("fire"):
        operator.on_watermark(WATERMARK_MAX_MS)
    results = sum(len(records) for _, records in out.emitted)
    assert sum(r.batch.column("n").to_numpy().sum() for _, r in out.emitted) == rows
    rates = {
        f"{name}_m_per_s": rows / timer.total_s[name] / 1e6
        for name in ("hash", "hash_and_partition", "update")
    }
    longest = {f"{name}_longest_ms": timer.longest_ms[name] for name in ("update", "fire")}
    once = {f"{name}_ms": timer.longest_ms[name] for name in ("snapshot_sync", "snapshot_table", "restore")}
    fired = {"results": results, "fire_m_per_s": results / timer.total_s["fire"] / 1e6, "entries": entries}
    return {
        "keys": keys,
        "rows": rows,
        **{k: round(v, 2) for k, v in (rates | longest | fired | once).items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=4_000_000)
    options = parser.parse_args()
    for keys in options.keys:
        print(json.dumps(measure(keys, options.rows)), flush=True)


if __name__ == "__main__":
    main()
