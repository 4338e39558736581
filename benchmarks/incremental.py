"""Checkpoints of a process function's state that hold what has changed: bytes, pause, time, restore.

    python benchmarks/incremental.py --folder /tmp/incremental
    python benchmarks/incremental.py --keys 1000000 --changed 0.01 --checkpoints 80 --folder ...

All keys come once, then there is a checkpoint; then again and again a share of the keys, drawn from all, and
a checkpoint after each. Each is written by this thread before records come again, so times don't disturb each
other. The state is that of state_backends.py. Every backend runs in a process of its own. Prints one JSON
object per backend, with bytes as shares of the first checkpoint.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.state_backends import BATCH_ROWS, Visit, create
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.operators.processing.process import ProcessOperator
from onceflow.runtime.records import Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.tables import state_backend
from onceflow.runtime.testing.harness import LONE_SUBTASK, Collected
from onceflow.runtime.types.record_types import arrow_schema

GROUPS = range(128)


class Measured:
    """One backend in this process."""

    def __init__(self, options: StateOptions, folder: str) -> None:
        self._options = options
        self._files = StateFiles(LocalStore(folder), 1)
        self._operator = self._opened()
        self.handles: list[StateHandle] = []
        self.pauses_ms: list[float] = []
        self.writes_s: list[float] = []

    def _opened(self) -> ProcessOperator:
        operator, state = create(), state_backend(self._options)
        operator.open(replace(LONE_SUBTASK, state=state), Collected())
        return operator

    def push(self, users: np.ndarray[Any, Any]) -> None:
        for first in range(0, len(users), BATCH_ROWS):
            piece = pa.array(users[first : first + BATCH_ROWS], pa.int64())
            batch = pa.record_batch([piece], arrow_schema(Visit))
            times = np.zeros(batch.num_rows, np.int64)
            self._operator.on_records(Records(batch, times, hash_keys(batch, ["user"])))

    def checkpoint(self) -> None:
        began_s = time.monotonic()
        frozen = self._operator.snapshot()
        self.pauses_ms.append((time.monotonic() - began_s) * 1e3)
        began_s = time.monotonic()
        self.handles.append(self._files.write(len(self.handles) + 1, "visits", 0, frozen))
        self.writes_s.append(time.monotonic() - began_s)

    def written(self) -> Sequence[int]:
        """The bytes of each checkpoint that no earlier one has."""
        known: set[tuple[str, int]] = set()
        sizes = []
        for handle in self.handles:
            files = {(table.path, table.offset): table.size for table in handle.tables}
            sizes.append(sum(size for file, size in files.items() if file not in known))
            known |= files.keys()
        return sizes

    def restore_s(self) -> float:
        self._operator.close()
        gc.collect()
        began_s = time.monotonic()
        restored = self._opened()
        restored.restore([self._files.read(self.handles[-1], GROUPS)])
        took_s = time.monotonic() - began_s
        restored.close()
        return took_s


def measure(options: StateOptions, keys: int, changed: float, checkpoints: int, folder: str) -> None:
    rng = np.random.default_rng(511)
    measured = Measured(options, folder)
    measured.push(np.arange(keys))
    measured.checkpoint()
    for _ in range(checkpoints):
        measured.push(rng.choice(keys, int(keys * changed), replace=False))
        measured.checkpoint()
    whole, *written = measured.written()
    newest = measured.handles[-1]
    print(
        json.dumps(
            {
                "backend": options.backend,
                "keys": keys,
                "changed": changed,
                "whole_mb": round(whole / 2**20, 1),
                "written_share": _spread([size / whole for size in written]),
                "kept_share": round(newest.size / whole, 2),
                "files": len(newest.tables),
                "pause_ms": _spread(measured.pauses_ms[1:]),
                "whole_pause_ms": round(measured.pauses_ms[0], 1),
                "write_s": _spread(measured.writes_s[1:]),
                "whole_write_s": round(measured.writes_s[0], 2),
                "restore_s": round(measured.restore_s(), 2),
            }
        ),
        flush=True,
    )


def _spread(values: Sequence[float]) -> dict[str, float]:
    p50, p99, most = np.percentile(values, [50, 99, 100]).tolist()
    return {"p50": round(p50, 4), "p99": round(p99, 4), "max": round(most, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--changed", type=float, default=0.01, help="from one checkpoint to the next")
    parser.add_argument("--checkpoints", type=int, default=80)
    parser.add_argument("--memory", type=int, default=64, help="what RocksDB's state may take, in MB")
    parser.add_argument("--folder", required=True, help="for the checkpoints")
    parser.add_argument("--only", choices=("heap", "rocksdb"))
    given = parser.parse_args()
    snapshots = SnapshotOptions(are_incremental=True)
    for options in (
        StateOptions(snapshots=snapshots),
        StateOptions("rocksdb", given.memory << 20, snapshots),
    ):
        if given.only in (None, options.backend):
            folder = f"{given.folder}/{options.backend}"
            arguments = options, given.keys, given.changed, given.checkpoints, folder
            process = multiprocessing.get_context("spawn").Process(target=measure, args=arguments)
            process.start()
            process.join()


if __name__ == "__main__":
    main()
