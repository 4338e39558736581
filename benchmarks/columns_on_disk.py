"""Columns of state larger than memory: updates per CPU-second of window aggregates with RocksDB behind them.

    python benchmarks/columns_on_disk.py
    python benchmarks/columns_on_disk.py --keys 4000000 --memory 128 --rows 2000000
    python benchmarks/columns_on_disk.py --gap "1 h" --only rocksdb

A count and a sum for each key (a text of 11 letters) in one window of an hour that stays open; with `--gap`
in sessions. First all keys come once (`fill`), then keys drawn at random: from the last twentieth that came
(`hot`, which fits into memory), and from all of them (`cold`). Batches have 10,000 rows, and bring the hashes
of their keys along, as from an exchange. Every backend runs in a process of its own. Rates are rows for each
second of CPU time: of the process (user and system, RocksDB's threads among them), and of this thread. Memory
is what the process has more than before the first record: the most, and the median of what it has after each
batch. With `--folder` a snapshot is written there at the end, and restored, all of it and half of it. Prints
one JSON object for each backend.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.operator import Operator, OperatorContext
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.state.tables import state_backend
from onceflow.runtime.testing.harness import Collected

BATCH_ROWS = 10_000
HOT_PART = 20
WARM_BATCHES = 20
SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
START_MS = 1_700_000_000_000 // 3_600_000 * 3_600_000

Users = Callable[[int], npt.NDArray[np.int64]]
"""The numbers of the users of a batch, by its first row."""


class Measured:
    """One backend in this process."""

    def __init__(self, options: StateOptions, gap: str | None) -> None:
        window = tumbling("1 h") if gap is None else session(gap)
        aggregate = WindowAggregate("totals", ("user",), window, {"n": count(), "s": sum_("amount")}, SCHEMA)
        self._make, self._options = aggregate.create, options
        self.operator = self._opened(range(128))
        self._process = psutil.Process()
        self._random = np.random.default_rng(511)
        for _ in range(WARM_BATCHES):  # which have one key: what is measured as memory is that of the state
            self.operator.on_records(self._records(np.zeros(BATCH_ROWS, np.int64)))
        self._before = self._process.memory_info().rss

    def rate(self, rows: int, users: Users) -> dict[str, Any]:
        """Push so many rows."""
        process_s = thread_s = longest_s = 0.0
        taken: list[int] = []
        for first in range(0, rows, BATCH_ROWS):
            records = self._records(users(first))
            process_before_s, thread_before_s = time.process_time(), time.thread_time()
            self.operator.on_records(records)
            process_s += time.process_time() - process_before_s
            thread_took_s = time.thread_time() - thread_before_s
            thread_s += thread_took_s
            longest_s = max(longest_s, thread_took_s)
            taken.append(self._process.memory_info().rss - self._before)
        return {
            "k_rows_per_cpu_s": round(rows / process_s / 1e3),
            "k_rows_per_thread_cpu_s": round(rows / thread_s / 1e3),
            "longest_batch_cpu_ms": round(longest_s * 1e3),
            "rss_mb": round(statistics.median(taken)) >> 20,
            "rss_most_mb": max(taken) >> 20,
        }

    def barrier(self, folder: str) -> dict[str, Any]:
        """Write a snapshot, and read it back: all of it, and what one of two slots needs."""
        files = StateFiles(LocalStore(folder), 1)
        began_s = time.monotonic()
        frozen = self.operator.snapshot()
        assert frozen is not None
        paused_s = time.monotonic() - began_s
        found: dict[str, Any] = {"pause_ms": round(paused_s * 1e3, 1)}
        process_before_s = time.process_time()
        handle = files.write(1, "totals", 0, frozen)
        found["write_s"] = round(time.monotonic() - began_s, 1)
        found["write_cpu_s"] = round(time.process_time() - process_before_s, 1)
        found["mb"] = sum(table.size for table in handle.tables) >> 20
        found["rss_mb"] = (self._process.memory_info().rss - self._before) >> 20
        self.operator.close()
        del frozen
        for name, key_groups in (("restore", range(128)), ("restore_half", range(64))):
            began_s, process_before_s = time.monotonic(), time.process_time()
            restored = self._opened(key_groups)
            restored.restore([files.read(handle, key_groups)])
            found[f"{name}_s"] = round(time.monotonic() - began_s, 1)
            found[f"{name}_cpu_s"] = round(time.process_time() - process_before_s, 1)
            restored.close()
        return found

    def _opened(self, key_groups: range) -> Operator:
        operator: Operator = self._make()
        state = state_backend(self._options)
        operator.open(
            OperatorContext("totals", 0, 1, 128, key_groups, ManualClock(), state=state), Collected()
        )
        return operator

    def _records(self, users: npt.NDArray[np.int64]) -> Records:
        names = pa.array(np.char.add("u", np.char.zfill(users.astype("U10"), 10)))
        amounts = pa.array(self._random.integers(0, 100_000, len(users)))
        batch = pa.record_batch([names, amounts], SCHEMA)
        times = START_MS + self._random.integers(0, 3_600_000, len(users))
        return Records(batch, times, hash_keys(batch, ["user"]))


def measure(options: StateOptions, keys: int, rows: int, gap: str | None, folder: str | None) -> None:
    random, measured = np.random.default_rng(512), Measured(options, gap)
    found = {
        "backend": options.backend,
        "state_memory_mb": options.memory_bytes and options.memory_bytes >> 20,
        "keys": keys,
        "gap": gap,
        "fill": measured.rate(keys, lambda first: np.arange(first, first + BATCH_ROWS)),
        "hot": measured.rate(rows, lambda _: random.integers(keys - keys // HOT_PART, keys, BATCH_ROWS)),
        "cold": measured.rate(rows, lambda _: random.integers(0, keys, BATCH_ROWS)),
    }
    if folder is None:
        measured.operator.close()
    else:
        found["barrier"] = measured.barrier(f"{folder}/{options.backend}")
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of hot, and of cold keys")
    parser.add_argument("--memory", type=int, default=32, help="what RocksDB's state may take, in MB")
    parser.add_argument("--gap", help="sessions with this gap instead of one window")
    parser.add_argument("--folder", help="where a snapshot is written to, and read from")
    parser.add_argument("--only", choices=("heap", "rocksdb"))
    given = parser.parse_args()
    for options in (StateOptions(), StateOptions("rocksdb", given.memory << 20)):
        if given.only in (None, options.backend):
            arguments = options, given.keys, given.rows, given.gap, given.folder
            process = multiprocessing.get_context("spawn").Process(target=measure, args=arguments)
            process.start()
            process.join()


if __name__ == "__main__":
    main()
