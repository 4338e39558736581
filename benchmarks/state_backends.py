"""A process function's state on heap and in RocksDB: updates per second, memory, barriers, restore.

    python benchmarks/state_backends.py --folder ...
    python benchmarks/state_backends.py --keys 2000000 --memory 128 --rows 400000 --folder ...
    python benchmarks/state_backends.py --only rocksdb --keys 10000000 --letters 1000 --memory 512 \
        --checkpoint-s 30 --folder ...

Each key has a number and a text of `--letters` letters, which are drawn at random and don't compress; each
record reads both and writes the number. First all keys come once (`fill`), then keys drawn at random: from
the last fiftieth that came (`hot`), and from all of them (`cold`). Then a barrier: its pause, and how long
the snapshot takes to be written by the thread it is written on. Then a restore of that snapshot. With
`--checkpoint-s` there are incremental checkpoints from the first record on: a barrier so many seconds after
the last checkpoint was written, by a thread of its own while records go on coming; the last one is restored.
Files go that the newest checkpoint does not name.

Every backend runs in a process of its own, and each restore in another. Rates are rows per second of this
thread's CPU time, of the process's (RocksDB's threads and the one that writes checkpoints among them), and by
the clock. Memory is what the process has more than before the first record, looked at twenty times a second:
the median, and the most; `scratch_mb` is what RocksDB has on disk. Prints one JSON object per backend.
"""

from __future__ import annotations

import argparse
import base64
import gc
import json
import multiprocessing
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.records import Records
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.operator_state import FrozenState
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.tables import state_backend
from onceflow.runtime.testing.harness import LONE_SUBTASK, Collected
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader

BATCH_ROWS = 5_000
HOT_PART = 50
WARM_BATCHES = 20
LETTERS = 100
LOOK_S = 0.05
GROUPS = range(128)


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

    def __init__(self, letters: int) -> None:
        self._random = random.Random(511)
        self._text_bytes = letters * 3 // 4

    def process(self, visit: Visit, ctx: Ctx) -> Iterator[Count]:
        visits = (self.visits.get() or 0) + 1
        self.visits.set(visits)
        if self.last.get() is None:
            self.last.set(base64.b64encode(self._random.randbytes(self._text_bytes)).decode())
        if visits > 1_000_000:
            yield Count(visit.user, visits)


def create(letters: int = LETTERS) -> ProcessOperator:
    schema = arrow_schema(Visit)
    made, reader = RecordWriter(arrow_schema(Count)), RecordReader(Visit)
    return ProcessOperator(ProcessConfig("visits", Visits(letters), ("user",), schema, made, reader, False))


class Memory:
    """What this process has more than when it was made, looked at by a thread."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss
        self._seen: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def taken(self) -> dict[str, int]:
        """Since the last time: the median and the most, in MB."""
        self._seen.append(self._process.memory_info().rss - self._before)
        seen, self._seen = self._seen, []
        return {"rss_mb": round(statistics.median(seen)) >> 20, "rss_most_mb": max(seen) >> 20}

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self._seen.append(self._process.memory_info().rss - self._before)


class Checkpoints:
    """Checkpoints that are written while records come."""

    def __init__(self, operator: ProcessOperator, folder: str, every_s: float | None) -> None:
        """`every_s`: None for those only that `complete` makes."""
        self.files = StateFiles(LocalStore(folder), 1)
        self._store = LocalStore(folder)
        self._operator, self._every_s = operator, every_s
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[StateHandle] | None = None
        self._next_s = time.monotonic() + (every_s or 0)
        self._ids = iter(range(1, 1 << 30))
        self.newest: StateHandle | None = None
        self.pauses_ms: list[float] = []
        self.made: list[dict[str, float]] = []

    def between_batches(self) -> None:
        """Have the next barrier if it is time."""
        if self._every_s is not None:
            if self._writing is not None and self._writing.done():
                self._take()
            if self._writing is None and time.monotonic() >= self._next_s:
                self._begin()

    def complete(self) -> StateHandle:
        """Have one more, and wait until it is written."""
        if self._writing is not None:
            self._take()
        self._begin()
        return self._take()

    def _begin(self) -> None:
        began_s = time.monotonic()
        frozen = self._operator.snapshot()
        assert frozen is not None
        self.pauses_ms.append((time.monotonic() - began_s) * 1e3)
        self._writing = self._thread.submit(self._write, next(self._ids), frozen)

    def _write(self, checkpoint_id: int, frozen: FrozenState) -> StateHandle:
        began_s, cpu_before_s = time.monotonic(), time.thread_time()
        known = {(file.path, file.offset) for file in self.newest.tables} if self.newest else set()
        handle = self.files.write(checkpoint_id, "visits", 0, frozen)
        new = sum(file.size for file in handle.tables if (file.path, file.offset) not in known)
        self.made.append(
            {
                "written_mb": new >> 20,
                "named_mb": sum(file.size for file in handle.tables) >> 20,
                "write_s": round(time.monotonic() - began_s, 2),
                "write_cpu_s": round(time.thread_time() - cpu_before_s, 2),
            }
        )
        named = {file.path for file in handle.tables}
        self._store.delete([file.path for file in self._store.list("") if file.path not in named])
        return handle

    def _take(self) -> StateHandle:
        assert self._writing is not None
        self.newest, self._writing = self._writing.result(), None
        self._next_s = time.monotonic() + (self._every_s or 0)
        return self.newest


class Measured:
    """One backend in this process."""

    def __init__(self, options: StateOptions, letters: int, folder: str, checkpoint_s: float | None) -> None:
        self._operator = warm(options, letters)
        self._memory = Memory()
        self._checkpoints = Checkpoints(self._operator, folder, checkpoint_s)
        self.found: dict[str, Any] = {
            "backend": options.backend,
            "state_memory_mb": options.memory_bytes and options.memory_bytes >> 20,
        }

    def rate(self, name: str, rows: int, users: Callable[[int], np.ndarray[Any, Any]]) -> None:
        thread_s, process_s, wall_s = time.thread_time(), time.process_time(), time.monotonic()
        slowest_s = 0.0
        for first in range(0, rows, BATCH_ROWS):
            began_s = time.monotonic()
            push(self._operator, users(first))
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            self._checkpoints.between_batches()
        self.found[name] = {
            "rows_per_thread_cpu_s": round(rows / (time.thread_time() - thread_s)),
            "rows_per_process_cpu_s": round(rows / (time.process_time() - process_s)),
            "rows_per_s": round(rows / (time.monotonic() - wall_s)),
            "longest_batch_ms": round(slowest_s * 1e3),
            **self._memory.taken(),
        }

    def barrier(self) -> StateHandle:
        """The last checkpoint."""
        handle = self._checkpoints.complete()
        pauses_ms = self._checkpoints.pauses_ms
        self.found["checkpoints"] = {
            "pause_ms": {"median": round(statistics.median(pauses_ms), 1), "most": round(max(pauses_ms), 1)},
            "made": self._checkpoints.made,
        }
        self.found["last_checkpoint"] = self._checkpoints.made[-1] | self._memory.taken()
        scratch = [each for each in gc.get_objects() if type(each).__name__ == "ScratchFolder"]
        found = [file.stat().st_size for folder in scratch for file in folder.path.rglob("*")]
        self.found["scratch_mb"] = sum(found) >> 20
        del scratch
        self._memory.close()
        self._operator.close()
        return handle


def warm(options: StateOptions, letters: int) -> ProcessOperator:
    """An operator that has had a few batches of one key: what is measured as memory is that of the state."""
    operator, state = create(letters), state_backend(options)
    operator.open(replace(LONE_SUBTASK, state=state), Collected())
    for _ in range(WARM_BATCHES):
        push(operator, np.zeros(BATCH_ROWS, np.int64))
    return operator


def push(operator: ProcessOperator, users: np.ndarray[Any, Any]) -> None:
    batch = pa.record_batch([pa.array(users, pa.int64())], arrow_schema(Visit))
    operator.on_records(Records(batch, np.zeros(len(users), np.int64), hash_keys(batch, ["user"])))


def restore(options: StateOptions, letters: int, folder: str, handle: StateHandle) -> dict[str, float]:
    """What it takes to restore a checkpoint."""
    warm(options, letters).close()
    memory, operator = Memory(), create(letters)
    began_s, cpu_before_s = time.monotonic(), time.process_time()
    operator.open(replace(LONE_SUBTASK, state=state_backend(options)), Collected())
    operator.restore([StateFiles(LocalStore(folder), 2).read(handle, GROUPS)])
    found = {
        "s": round(time.monotonic() - began_s, 2),
        "cpu_s": round(time.process_time() - cpu_before_s, 2),
        **memory.taken(),
    }
    operator.close()
    return found


def measure(options: StateOptions, given: argparse.Namespace, folder: str) -> tuple[Any, StateHandle]:
    rng, keys = np.random.default_rng(511), given.keys
    measured = Measured(options, given.letters, folder, given.checkpoint_s)
    measured.found |= {"keys": keys, "letters": given.letters}
    measured.rate("fill", keys, lambda first: np.arange(first, first + BATCH_ROWS))
    measured.rate("hot", given.rows, lambda _: rng.integers(keys - keys // HOT_PART, keys, BATCH_ROWS))
    measured.rate("cold", given.rows, lambda _: rng.integers(0, keys, BATCH_ROWS))
    handle = measured.barrier()
    return measured.found, handle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=200_000, help="of hot, and of cold keys")
    parser.add_argument("--letters", type=int, default=LETTERS, help="of a key's text")
    parser.add_argument("--memory", type=int, default=64, help="what RocksDB's state may take, in MB")
    parser.add_argument("--checkpoint-s", type=float, help="from one written checkpoint to the next barrier")
    parser.add_argument("--folder", required=True, help="for the snapshots")
    parser.add_argument("--only", choices=("heap", "rocksdb"))
    given = parser.parse_args()
    snapshots = SnapshotOptions(are_incremental=given.checkpoint_s is not None)
    memory_bytes, context = given.memory << 20, multiprocessing.get_context("spawn")
    for options in (StateOptions(snapshots=snapshots), StateOptions("rocksdb", memory_bytes, snapshots)):
        if given.only in (None, options.backend):
            folder = str(Path(given.folder) / options.backend)
            with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as processes:
                found, handle = processes.submit(measure, options, given, folder).result()
                restored = processes.submit(restore, options, given.letters, folder, handle).result()
            print(json.dumps(found | {"restore": restored}), flush=True)


if __name__ == "__main__":
    main()
