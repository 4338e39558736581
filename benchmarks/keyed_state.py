"""The keyed part of the main job on one core: hash, partition, window update, fire, snapshot, restore.

    python benchmarks/keyed_state.py --keys 1000 100000 1000000
    python benchmarks/keyed_state.py --keys 100000 --slide "1 s"
    python benchmarks/keyed_state.py --keys 100000 --gap "5 s"
    python benchmarks/keyed_state.py --present --rows 20000000 --barrier-rows 200000
    ONCEFLOW_KERNELS=off python benchmarks/keyed_state.py

The stream of the main job without Kafka and JSON: batches of 10,000 rows, disorder up to 2 s, 10 s windows
with count and sum; `--rows-per-ms` rows in a millisecond of event time, so that with 100 a key of 1,000,000
comes about once per window and with 1,000 ten times. Rates are per CPU-second of this thread: `update` is
all of the operator's work on rows (new keys, growth), `all` has firing and compaction too, and the barriers.
A barrier is taken every `--barrier-rows`; its table is made and encoded by another thread, as in a slot. The
times of single calls are CPU times of this thread. Prints one JSON object per number of keys.

With `--present` nothing fires and no key is new: all keys come once before the clock starts, in one window,
and then keys drawn at random. `update` is then one update of a count and one of a sum per row, for batches
that bring their hash along (from the exchange); `hash_and_update` hashes the keys' texts as well. The pause
at a barrier is also given as wall time, which other work on the machine is part of.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.operator import FrozenState, Operator, OperatorContext
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import WATERMARK_MAX_MS, Records
from onceflow.runtime.slot.firing import fire_all
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.testing.harness import Collected, stored

BATCH_ROWS = 10_000
DISORDER_MS = 2_000
PRESENT_BATCHES = 150
MAX_PARALLELISM = 128
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("ts", pa.int64())])


class Timer:
    """This thread's CPU time by step, and each call's."""

    def __init__(self) -> None:
        self.calls_s: dict[str, list[float]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.thread_time()
        yield
        self.calls_s.setdefault(name, []).append(time.thread_time() - started)

    def total_s(self, *names: str) -> float:
        return sum(sum(self.calls_s.get(name, ())) for name in names)

    def quantile_ms(self, name: str, quantile: float) -> float:
        return float(np.quantile(self.calls_s[name], quantile)) * 1e3


def batches(keys: int, rows: int, rows_per_ms: int) -> Iterator[Records]:
    rng = np.random.default_rng(511)
    users = np.array([f"u{i:07d}" for i in range(keys)])
    start = 1_700_000_000_000
    for first in range(0, rows, BATCH_ROWS):
        ts = start + (first + np.arange(BATCH_ROWS)) // rows_per_ms - rng.integers(0, DISORDER_MS, BATCH_ROWS)
        columns = [
            pa.array(users[rng.integers(0, keys, BATCH_ROWS)]),
            pa.array(rng.integers(0, 100_000, BATCH_ROWS)),
        ]
        yield Records(pa.RecordBatch.from_arrays([*columns, pa.array(ts)], schema=SCHEMA), ts)


def window(slide: str | None, gap: str | None = None) -> WindowAggregate:
    """10 s, tumbling or sliding; or sessions."""
    if gap is not None:
        from onceflow.runtime.operators.assigners.session import session

        return WindowAggregate(
            "totals", ("user",), session(gap), {"n": count(), "total": sum_("amount")}, SCHEMA
        )
    if slide is None:
        return WindowAggregate(
            "totals", ("user",), tumbling("10 s"), {"n": count(), "total": sum_("amount")}, SCHEMA
        )
    from onceflow.runtime.operators.assigners.sliding import sliding

    return WindowAggregate(
        "totals", ("user",), sliding("10 s", slide), {"n": count(), "total": sum_("amount")}, SCHEMA
    )


def opened(aggregate: WindowAggregate) -> tuple[Operator, Collected]:
    operator, out = aggregate.create(), Collected()
    context = OperatorContext("totals", 0, 1, MAX_PARALLELISM, range(MAX_PARALLELISM), ManualClock())
    operator.open(context, out)
    return operator, out


def write(state: FrozenState) -> int:
    """Write a snapshot as a slot's background does, but into memory; returns its rows."""
    handle = StateFiles(MemoryStore(), 1).write(1, "totals", 0, state)
    return sum(sum(table.rows_per_key_group) for table in handle.tables)


def measure(options: argparse.Namespace, keys: int) -> dict[str, Any]:
    timer, partitioner = Timer(), Partitioner(("user",), MAX_PARALLELISM, 2)
    aggregate = window(options.slide, options.gap)
    with timer.step("create"):
        operator, out = opened(aggregate)
    results = counted = 0
    writer, built = ThreadPoolExecutor(1), Future[int]()
    built.set_result(0)
    for number, records in enumerate(batches(keys, options.rows, options.rows_per_ms), start=1):
        with timer.step("hash"):
            key_hash = hash_keys(records.batch, ["user"])
        with timer.step("hash_and_partition"):
            parts = list(partitioner.split(records))
        assert sum(len(part) for _, part in parts) == BATCH_ROWS
        with timer.step("update"):
            operator.on_records(Records(records.batch, records.event_time, key_hash))
        assert records.event_time is not None
        with timer.step("fire"):
            fire_all(operator, int(records.event_time.max()) - DISORDER_MS - 1)
        results, counted = results + sum(len(r) for _, r in out.emitted), counted + counts(out)
        if number * BATCH_ROWS % options.barrier_rows == 0:
            entries = built.result()
            with timer.step("barrier"):
                state = operator.snapshot()
            assert state is not None
            built = writer.submit(write, state)
            del state  # as in a slot: what was written is let go of
    entries = built.result()
    restored, _ = opened(aggregate)
    state = operator.snapshot()
    assert state is not None
    read_back = stored(state)
    with timer.step("restore"):
        restored.restore([read_back])
    del restored, read_back, state, built
    with timer.step("fire"):
        fire_all(operator, WATERMARK_MAX_MS)
    results, counted = results + sum(len(r) for _, r in out.emitted), counted + counts(out)
    assert options.slide or options.gap or counted == options.rows, (counted, options.rows)
    shown = {
        "hash_m_per_s": options.rows / timer.total_s("hash") / 1e6,
        "hash_and_partition_m_per_s": options.rows / timer.total_s("hash_and_partition") / 1e6,
        "update_m_per_s": options.rows / timer.total_s("update") / 1e6,
        "all_m_per_s": options.rows / timer.total_s("update", "fire", "barrier") / 1e6,
        "fire_m_per_s": results / timer.total_s("fire") / 1e6,
        "update_longest_ms": timer.quantile_ms("update", 1),
        "fire_longest_ms": timer.quantile_ms("fire", 1),
        "barrier_p50_ms": timer.quantile_ms("barrier", 0.5),
        "barrier_p99_ms": timer.quantile_ms("barrier", 0.99),
        "restore_ms": timer.quantile_ms("restore", 1),
        "create_ms": timer.quantile_ms("create", 1),
        "resident_max_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    lengths = {"rows_per_ms": options.rows_per_ms, "slide": options.slide, "gap": options.gap}
    sizes = {"keys": keys, "rows": options.rows, **lengths}
    sizes |= {"results": results, "entries": entries, "barriers": len(timer.calls_s["barrier"])}
    return sizes | {name: round(value, 2) for name, value in shown.items()}


def measure_present(options: argparse.Namespace, keys: int) -> dict[str, Any]:
    """All keys are there, in one window that stays open."""
    timer, aggregate = Timer(), window(options.slide, options.gap)
    operator, _ = opened(aggregate)
    rng = np.random.default_rng(512)
    users, start = np.array([f"u{i:07d}" for i in range(keys)]), 1_700_000_000_000

    def records(rows: npt.NDArray[np.int64]) -> Records:
        ts = start + rng.integers(0, 10_000, len(rows))
        columns = [pa.array(users[rows]), pa.array(rng.integers(0, 100_000, len(rows))), pa.array(ts)]
        return Records(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), ts)

    order = rng.permutation(keys)
    for first in range(0, keys, BATCH_ROWS):
        loaded = records(order[first : first + BATCH_ROWS])
        operator.on_records(replace(loaded, key_hash=hash_keys(loaded.batch, ["user"])))
    # Enough different batches that none is in a cache when it comes again.
    ready = [records(rng.integers(0, keys, BATCH_ROWS)) for _ in range(PRESENT_BATCHES)]
    writer, built, walls_s, entries = ThreadPoolExecutor(1), Future[int](), list[float](), 0
    built.set_result(0)
    for number in range(1, options.rows // BATCH_ROWS + 1):
        batch = ready[number % PRESENT_BATCHES]
        with timer.step("hash"):
            key_hash = hash_keys(batch.batch, ["user"])
        with timer.step("update"):
            operator.on_records(replace(batch, key_hash=key_hash))
        if number * BATCH_ROWS % options.barrier_rows == 0:
            entries = built.result()
            started = time.perf_counter()
            with timer.step("barrier"):
                state = operator.snapshot()
            walls_s.append(time.perf_counter() - started)
            assert state is not None
            built = writer.submit(write, state)
            del state  # as in a slot: what was written is let go of
    entries = built.result()
    shown = {
        "update_m_per_s": options.rows / timer.total_s("update") / 1e6,
        "hash_and_update_m_per_s": options.rows / timer.total_s("hash", "update") / 1e6,
        "barrier_p50_ms": timer.quantile_ms("barrier", 0.5),
        "barrier_p99_ms": timer.quantile_ms("barrier", 0.99),
        "barrier_longest_ms": timer.quantile_ms("barrier", 1),
        "barrier_wall_p50_ms": float(np.quantile(walls_s, 0.5)) * 1e3,
        "barrier_wall_p99_ms": float(np.quantile(walls_s, 0.99)) * 1e3,
        "barrier_wall_longest_ms": max(walls_s) * 1e3,
    }
    sizes = {"keys": keys, "rows": options.rows, "slide": options.slide, "gap": options.gap, "present": True}
    sizes |= {"entries": entries, "barriers": len(walls_s)}
    return sizes | {name: round(value, 2) for name, value in shown.items()}


def counts(out: Collected) -> int:
    """The rows counted by what was emitted, which is let go of."""
    total = sum(int(r.batch.column("n").to_numpy().sum()) for _, r in out.emitted)
    out.emitted.clear()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rows-per-ms", type=int, default=100)
    parser.add_argument("--barrier-rows", type=int, default=500_000)
    parser.add_argument("--slide", help="sliding windows: how far apart")
    parser.add_argument("--gap", help="session windows: the gap")
    parser.add_argument("--present", action="store_true", help="all keys are there before the clock starts")
    options = parser.parse_args()
    for keys in options.keys:
        measured = measure_present(options, keys) if options.present else measure(options, keys)
        print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
