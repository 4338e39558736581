"""What a slot does with rows, stage by stage: nanoseconds of its CPU for each row, without a broker.

    python benchmarks/stages.py --rows 32768 --keys 1000000 --rounds 15
    ONCEFLOW_KERNELS=off python benchmarks/stages.py

Rows are those of the main job. Medians of rounds in turns; a snapshot is of as many rows as there are keys.
Fetching and decoding have benchmarks of their own (fetch.py, json_decode.py), and so has all of producing
(produce.py) and the update of state (keyed_state.py).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.keyed_state import MAX_PARALLELISM, SCHEMA, opened, window, write
from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.produce.row_encoder import RowEncoder
from onceflow.connectors.kafka.produce.structs import runs
from onceflow.connectors.kafka.records.batch_writer import BatchWriter, RowsToWrite
from onceflow.connectors.kafka.transactions.staged_file import StagedFileWriter
from onceflow.runtime.arrays.recycled_memory import RecycledMemory
from onceflow.runtime.checkpoint.durable_file import DurableFile
from onceflow.runtime.exchange.frames import HEADER, FrameCodec
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.records import Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.sinks.kafka import KafkaSink

PARTITIONS = 4
BATCH_BYTES = 1_000_000
START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Stage:
    """Something done to `rows` rows at each call."""

    name: str
    rows: int
    run: Callable[[], object]


def purchases(rows: int, keys: int, seed: int = 7) -> Records:
    rng = np.random.default_rng(seed)
    users = pa.array([f"user{n:06d}" for n in rng.integers(0, keys, rows)])
    times = START_MS + rng.integers(0, 10_000, rows)
    batch = pa.RecordBatch.from_arrays(
        [users, pa.array(rng.integers(0, 100_000, rows)), pa.array(times)], schema=SCHEMA
    )
    return Records(batch, times, hash_keys(batch, ["user"]))


def upstream(records: Records) -> list[Stage]:
    """The stages until a row is where its key belongs."""
    batch, rows = records.batch, len(records)
    partitioner = Partitioner(("user",), MAX_PARALLELISM, 2)
    codec = FrameCodec(SCHEMA, has_event_time=True, has_key_hash=True, with_origin=False)
    head, body = codec.encode(records)
    kind, meta_bytes, _ = HEADER.unpack_from(head)
    meta, received = bytes(head[HEADER.size : HEADER.size + meta_bytes]), memoryview(bytearray(body))
    return [
        Stage("hash a key", rows, lambda: hash_keys(batch, ["user"])),
        Stage("exchange: hash, split by slot", rows, lambda: list(partitioner.split(Records(batch, None)))),
        Stage("exchange: write a frame", rows, lambda: codec.encode(records)),
        Stage("exchange: read a frame", rows, lambda: codec.decode(kind, meta, received)),
    ]


def downstream(records: Records, folder: Path) -> list[Stage]:
    """From a result to what waits for its commit."""
    rows = len(records)
    results = records.with_batch(records.batch.rename_columns(["user", "total", "window_end"]))
    encoder = RowEncoder(
        KafkaSink("localhost:9092", "totals", key="user").record_parts,
        "totals",
        results.batch.schema,
        RecycledMemory(),
    )
    encoded = encoder.encode(results, PARTITIONS, [rows], 0)
    writer = BatchWriter(ProducerIdentity(1, 0), BATCH_BYTES)
    files = iter(range(1 << 30))

    def write_batches() -> None:
        writer.take(encoded, START_MS)
        rests = [RowsToWrite(run.start, run.stop, 0) for run in runs(encoded)]
        while rests:
            batches = writer.write(rests)
            after = zip(rests, batches, strict=True)
            rests = [RowsToWrite(b.after, r.stop, 0) for r, b in after if b.after < r.stop]

    def stage() -> None:
        path = folder / str(next(files))
        file: Any = DurableFile(path)
        staged = StagedFileWriter(str(path), file)
        staged.write(encoded)
        staged.close()
        path.unlink()

    return [
        Stage(
            "encode: JSON and key, by partition", rows, lambda: encoder.encode(results, PARTITIONS, [rows], 0)
        ),
        Stage("stage: write to a durable file", rows, stage),
        Stage("produce: write record batches", rows, write_batches),
    ]


def snapshot(keys: int) -> list[Stage]:
    """The snapshot of a window with so many keys, as a slot's background writes it, into memory."""
    operator, _ = opened(window(None))
    for first in range(0, keys, 10_000):
        users = pa.array([f"user{n:06d}" for n in range(first, min(first + 10_000, keys))])
        times = np.full(len(users), START_MS)
        columns = [users, pa.array(np.arange(len(users))), pa.array(times)]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        operator.on_records(Records(batch, times, hash_keys(batch, ["user"])))

    def freeze_and_write() -> int:
        state = operator.snapshot()
        assert state is not None
        return write(state)

    return [
        Stage("snapshot: the pause at the barrier", keys, operator.snapshot),
        Stage("snapshot: pause and writing", keys, freeze_and_write),
    ]


def measure(stages: list[Stage], rounds: int) -> dict[str, float]:
    """Nanoseconds for each row."""
    found: dict[str, list[float]] = {stage.name: [] for stage in stages}
    for _ in range(rounds + 1):
        for stage in stages:
            started = time.thread_time_ns()
            stage.run()
            found[stage.name].append((time.thread_time_ns() - started) / stage.rows)
    return {name: statistics.median(times[1:]) for name, times in found.items()}  # the first one compiles


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=32_768)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    records = purchases(options.rows, options.keys)
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as folder:
        stages = [*upstream(records), *downstream(records, Path(folder)), *snapshot(options.keys)]
        found = measure(stages, options.rounds)
    table = Table("stage", "ns of CPU for each row")
    for name, nanoseconds in found.items():
        table.add_row(name, f"{nanoseconds:,.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
