"""What a live question costs the slot that answers it: a barrier waits so long.

    python -m benchmarks.live_rows --rows 1000000

For windows and joins with so many rows in one slot, in memory and with most of them on disk: milliseconds for
one key and for 1,000 keys, without the way there and back. The median and the longest of some questions, and
CPU milliseconds, which say more where others use the cores. Prints a line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.aggregation.aggregates import count, max_, mean, sum_
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.joins.interval_join import IntervalJoin
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns
from onceflow.runtime.operators.joins.window_join import WindowJoin
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state_tables.listing import shapes_of_operator
from onceflow.runtime.state_tables.live import as_bytes, rows_of
from onceflow.runtime.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])
RIGHT = pa.schema([("name", pa.string()), ("m", pa.int64())])
BATCH = 1 << 14
HOUR_MS = 3_600_000
ROWS_OF_KEY = 10
"""How many windows, or rows of a join, each key has."""


def windows(window: Window) -> WindowAggregate:
    aggregates = {"rows": count(), "total": sum_("n"), "high": max_("n"), "mean": mean("n")}
    return WindowAggregate("asked", ("user",), window, aggregates, SCHEMA)


def cases() -> Mapping[str, Any]:
    columns = JoinedColumns("asked", (("user",), ("name",)), "inner")
    passes, sides = columns.passes(SCHEMA, RIGHT), (SCHEMA, RIGHT)
    return {
        "tumbling windows": windows(Tumbling(HOUR_MS)),
        "sliding windows": windows(Sliding(HOUR_MS * 24, HOUR_MS)),
        "sessions": windows(Session(HOUR_MS // 2)),
        "interval join": IntervalJoin(columns, sides, passes, 0, HOUR_MS),
        "window join": WindowJoin(columns, sides, Tumbling(HOUR_MS), passes),
    }


def filled(config: Any, rows: int, state: StateBackend) -> OperatorHarness:
    harness = OperatorHarness(config.create, ["user"], right_keys=["name"], state=state)
    users = rows // ROWS_OF_KEY
    for first in range(0, rows, BATCH):
        numbers = np.arange(first, min(first + BATCH, rows))
        names = pa.array([f"user-{n:08}" for n in (numbers % users).tolist()])
        batch = pa.record_batch([names, pa.array(numbers)], SCHEMA)
        harness.push(batch, (numbers // users * HOUR_MS).tolist())
        harness.out.emitted.clear()
    return harness


def measure(title: str, config: Any, rows: int, where: str, state: StateBackend) -> None:
    harness = filled(config, rows, state)
    (operator,), (shape,) = harness.subtasks, shapes_of_operator("asked", config.description)
    drawn = np.random.default_rng(7)
    for keys in (1, 1_000):
        walls, cpus, found = [], [], 0
        for _ in range(30):
            numbers = drawn.integers(0, rows // ROWS_OF_KEY, keys).tolist()
            asked = pa.record_batch({"user": [f"user-{n:08}" for n in numbers]})
            wall, cpu = time.perf_counter(), time.process_time()
            table = rows_of(shape, operator.peek(AskedKeys(asked)))  # type: ignore[attr-defined]
            as_bytes(table)
            walls.append(1_000 * (time.perf_counter() - wall))
            cpus.append(1_000 * (time.process_time() - cpu))
            found = table.num_rows
        said = {"of": title, "state": where, "rows": rows, "keys": keys, "found": found}
        figures = {"ms": median(walls), "longest ms": max(walls), "cpu ms": median(cpus)}
        print(json.dumps({**said, **{name: round(value, 2) for name, value in figures.items()}}), flush=True)
    harness.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--on-disk", action="store_true", help="With RocksDB, and 64 MB of memory.")
    parser.add_argument("--of", default="", help="Only what has this in its name.")
    given = parser.parse_args()
    for title, config in cases().items():
        if given.of not in title:
            continue
        if not given.on_disk:
            measure(title, config, given.rows, "heap", UNLIMITED)
            continue
        from onceflow.runtime.state.rocks.backend import RocksBackend  # an extra

        with tempfile.TemporaryDirectory(prefix="onceflow-") as folder:
            backend = RocksBackend(64 << 20, folder=Path(folder))
            measure(title, config, given.rows, "rocksdb", backend)


if __name__ == "__main__":
    main()
