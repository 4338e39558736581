"""A process function's state on heap and in RocksDB: updates per second, memory, barriers, restore.

    python benchmarks/state_backends.py
    python benchmarks/state_backends.py --keys 2000000 --memory 128 --rows 400000

Each key has a number and a text of 100 letters; each record reads both and writes the number. First all keys
come once (`fill`), then keys drawn at random: from the last twentieth that came (`hot`), and from all of them
(`cold`). Then a barrier: its pause, and how long the snapshot takes to be written by the thread it is written
on. Then a restore of that snapshot. Every backend runs in a process of its own. Rates are per second of this
thread's CPU time, and per second of the process's, RocksDB's own threads among them; memory is what the
process has more at most than before the first record. Prints one JSON object per backend.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.state.tables import state_backend
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader

BATCH_ROWS = 5_000
HOT_PART = 20
TEXT = "x" * 100


@dataclass(frozen=True, slots=True)
class Visit:
    user: int


@dataclass(frozen=True, slots=True)
class Count:
    user: int
    visits: int


class Visits(KeyedProcess[int, Visit, Count]):
    visits = ValueState("visits", int)
    last = ValueState("last", str)

    def process(self, visit: Visit, ctx: Ctx) -> Iterator[Count]:
        visits = (self.visits.get() or 0) + 1
        self.visits.set(visits)
        if self.last.get() is None:
            self.last.set(f"{TEXT}{visit.user}")
        if visits > 1_000_000:
            yield Count(visit.user, visits)


def create() -> ProcessOperator:
    schema = arrow_schema(Visit)
    made, reader = RecordWriter(arrow_schema(Count)), RecordReader(Visit)
    return ProcessOperator(ProcessConfig("visits", Visits(), ("user",), schema, made, reader, False))


class Measured:
    """One backend in this process."""

    def __init__(self, options: StateOptions) -> None:
        self._process = psutil.Process()
        self._options = options
        self.harness = OperatorHarness(create, ["user"], state=state_backend(options))
        self.push(np.zeros(1, np.int64))
        self._before = self._process.memory_info().rss
        self._most = 0
        self.found: dict[str, Any] = {
            "backend": options.backend,
            "state_memory_mb": options.memory_bytes and options.memory_bytes >> 20,
        }

    def push(self, users: np.ndarray[Any, Any]) -> None:
        batch = pa.record_batch([pa.array(users, pa.int64())], arrow_schema(Visit))
        self.harness.push(batch, [0] * len(users))

    def rate(self, name: str, rows: int, users: Callable[[int], np.ndarray[Any, Any]]) -> None:
        thread_s, process_s, wall_s = time.thread_time(), time.process_time(), time.monotonic()
        slowest_s = 0.0
        for first in range(0, rows, BATCH_ROWS):
            began_s = time.monotonic()
            self.push(users(first))
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            self.note_memory()
        self.found[name] = {
            "rows_per_thread_cpu_s": round(rows / (time.thread_time() - thread_s)),
            "rows_per_process_cpu_s": round(rows / (time.process_time() - process_s)),
            "rows_per_s": round(rows / (time.monotonic() - wall_s)),
            "longest_batch_ms": round(slowest_s * 1e3),
            "rss_mb": self._most >> 20,
        }

    def note_memory(self) -> None:
        self._most = max(self._most, self._process.memory_info().rss - self._before)

    def barrier(self, folder: str) -> None:
        files = StateFiles(LocalStore(folder), 1)
        began_s = time.monotonic()
        frozen = self.harness.subtasks[0].snapshot()
        assert frozen is not None
        paused_s = time.monotonic() - began_s
        handle = files.write(1, "visits", 0, frozen)
        self.note_memory()
        self.found["barrier"] = {
            "pause_ms": round(paused_s * 1e3, 1),
            "write_s": round(time.monotonic() - began_s, 2),
            "mb": sum(table.size for table in handle.tables) >> 20,
            "rss_mb": self._most >> 20,
        }
        del frozen
        self.harness.close()
        gc.collect()
        began_s = time.monotonic()
        state = files.read(handle, range(128))
        restored = OperatorHarness(create, ["user"], states=[state], state=state_backend(self._options))
        self.found["restore_s"] = round(time.monotonic() - began_s, 2)
        self.note_memory()
        restored.close()


def measure(options: StateOptions, keys: int, rows: int, folder: str) -> None:
    rng = np.random.default_rng(511)
    measured = Measured(options)
    measured.found["keys"] = keys
    measured.rate("fill", keys, lambda first: np.arange(first, first + BATCH_ROWS))
    measured.rate("hot", rows, lambda _: rng.integers(keys - keys // HOT_PART, keys, BATCH_ROWS))
    measured.rate("cold", rows, lambda _: rng.integers(0, keys, BATCH_ROWS))
    measured.barrier(folder)
    print(json.dumps(measured.found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=200_000, help="of hot, and of cold keys")
    parser.add_argument("--memory", type=int, default=64, help="what RocksDB's state may take, in MB")
    parser.add_argument("--folder", required=True, help="for the snapshots")
    parser.add_argument("--only", choices=("heap", "rocksdb"))
    given = parser.parse_args()
    for options in (StateOptions(), StateOptions("rocksdb", given.memory << 20)):
        if given.only in (None, options.backend):
            arguments = options, given.keys, given.rows, f"{given.folder}/{options.backend}"
            process = multiprocessing.get_context("spawn").Process(target=measure, args=arguments)
            process.start()
            process.join()


if __name__ == "__main__":
    main()
