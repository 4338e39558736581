"""What a restore into RocksDB rewrites, and what it would take to ingest RocksDB's own files instead.

    python -m benchmarks.ingested_files --keys 1000000 --memory 64

A count and a sum for each key in an open window (as in `columns_on_disk.py`), snapshot and restored as they
are: `now`, all of it, the half that one of two slots needs, and all of it on the heap. Beside it what a
format of sorted files would do with the same rows: `files` are RocksDB's, one for each of 16 ranges of ids,
written from the iterator that a snapshot reads; `ingest` takes them into an empty database; `put` writes the
same rows into one as a restore does. Seconds of CPU time are the process's, RocksDB's threads among them.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import Options, Rdict, SstFileWriter

from benchmarks.columns_on_disk import BATCH_ROWS, Measured
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.state.rocks.database import Database, SharedMemory
from onceflow.runtime.state.rocks.scratch import ScratchFolder

RANGES = 16
PUT_ROWS = 4_096


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a call returns, and what it took."""
    began_s, cpu_before_s = time.monotonic(), time.process_time()
    made = call()
    cpu_s = time.process_time() - cpu_before_s
    return made, {"s": round(time.monotonic() - began_s, 2), "cpu_s": round(cpu_s, 2)}


def mb(folder: Path) -> float:
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 1)


def as_it_is(measured: Measured, folder: Path) -> dict[str, Any]:
    """A whole snapshot and a restore of it."""
    files = StateFiles(LocalStore(str(folder / "checkpoints")), 1)
    frozen = measured.operator.snapshot()
    assert frozen is not None
    handle, written = timed(lambda: files.write(1, "totals", 0, frozen))
    measured.operator.close()
    everything = range(128)

    def read_all() -> int:
        """All rows, decompressed."""
        tables = files.read(handle, everything).tables.values()
        return sum(batch.num_rows for rows in tables for batch in rows() if batch.validate(full=True) is None)

    rows_there, read = timed(read_all)
    restored = measured._opened(everything)
    _, took = timed(lambda: restored.restore([files.read(handle, everything)]))
    scratch = [each for each in gc.get_objects() if isinstance(each, Database)]
    sizes = [mb(each._folder.path) for each in scratch]
    restored.close()
    half = measured._opened(range(64))
    _, took_half = timed(lambda: half.restore([files.read(handle, range(64))]))
    half.close()
    measured._options = StateOptions()
    in_memory = measured._opened(everything)
    _, took_in_memory = timed(lambda: in_memory.restore([files.read(handle, everything)]))
    in_memory.close()
    return {
        "rows": rows_there,
        "mb": mb(folder / "checkpoints"),
        "write": written,
        "read_and_check": read,
        "restore": took,
        "restore_half": took_half,
        "restore_on_heap": took_in_memory,
        "scratch_mb": max(sizes),
    }


def as_sorted_files(rows: list[tuple[bytes, bytes]], folder: Path) -> dict[str, Any]:
    """The same rows as RocksDB's files, ingested, and put."""
    folder.mkdir()
    cuts = [len(rows) * n // RANGES for n in range(RANGES + 1)]
    paths = [str(folder / f"{n}.sst") for n in range(RANGES)]

    def write() -> None:
        for path, first, end in zip(paths, cuts[:-1], cuts[1:], strict=True):
            writer = SstFileWriter(Options(raw_mode=True))
            writer.open(path)
            for key, content in rows[first:end]:
                writer[b"r" + key] = content
            writer.finish()

    _, written = timed(write)
    found: dict[str, Any] = {"mb": mb(folder), "write": written}
    opened = Rdict(str(folder.parent / "ingested"), Options(raw_mode=True))
    _, found["ingest"] = timed(lambda: opened.ingest_external_file(paths))
    opened.close()
    database = Database(SharedMemory(64 << 20), ScratchFolder(folder.parent))

    def put() -> None:
        for first in range(0, len(rows), PUT_ROWS):
            database.put(rows[first : first + PUT_ROWS])

    _, found["put"] = timed(put)
    database.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--memory", type=int, default=64, help="what RocksDB's state may take, in MB")
    given = parser.parse_args()
    measured = Measured(StateOptions("rocksdb", given.memory << 20), None)
    measured.rate(given.keys, lambda first: np.arange(first, first + BATCH_ROWS))
    [database] = [each for each in gc.get_objects() if isinstance(each, Database)]
    rows, frozen = timed(lambda: list(database.freeze()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {"keys": given.keys, "rows_on_disk": len(rows), "iterate": frozen}
        found["files"] = as_sorted_files(rows, folder / "sst")
        del rows
        found["now"] = as_it_is(measured, folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
