"""The job of the golden checkpoints: every kind of keyed state there is.

`python tests/unit/changed_programs/golden_job.py FOLDER` runs its first half on two slots, with a restart in
between, and leaves there the checkpoint folder with its last checkpoint. That is how `golden_3` was made,
at format version 3, and `golden_savepoint_4` (of FOLDER-savepoint) at 4, the first with savepoints. With
`incremental` behind FOLDER checkpoints build on each other: so `golden_savepoint_5` was made. A golden
folder is never written again, since that would prove nothing: a new format gets new ones.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from onceflow.runtime.checkpoint.savepoints.taking import copy_savepoint
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.operators.aggregation.aggregates import (
    AggregateFunction,
    count,
    first,
    last,
    max_,
    mean,
    min_,
    sum_,
)
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.state.handles import ListState, MapState, ValueState
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.testing.tight_state import EAGER

KEYS = 211
COMMITTED, PROMISED, ALL = 310, 330, 700
"""The output of so many records was committed when the checkpoint was taken, that of so many is in it or in
the state; and so many there are."""
WINDOW_MS = 10_000


class Row(NamedTuple):
    user: str
    amount: int
    price: float | None
    ts: int


class Bill(NamedTuple):
    user: str
    at: int
    total: int
    times: int


class Widest(AggregateFunction[Any, list[int], int]):
    """The span of the amounts."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        seen = [*accumulator, value.amount]
        return [min(seen), max(seen)]

    def merge(self, accumulator_a: list[int], accumulator_b: list[int]) -> list[int]:
        seen = [*accumulator_a, *accumulator_b]
        return [min(seen), max(seen)] if seen else []

    def get_result(self, accumulator: list[int]) -> int:
        return accumulator[-1] - accumulator[0]


class Bills(KeyedProcess[str, Row, Bill]):
    """For each record the number of the key's records; at the end of each window its total and its times.
    What it gives does not depend on how records come in batches."""

    n = ValueState("n", int)
    totals = MapState("totals", int, int)
    times = ListState("times", int)

    def process(self, record: Row, ctx: Ctx, /) -> Iterator[Bill]:
        end = record.ts // WINDOW_MS * WINDOW_MS + 2 * WINDOW_MS
        self.n.set((self.n.get() or 0) + 1)
        self.totals.put(end, self.totals.get(end, 0) + record.amount)
        self.times.add(record.ts)
        ctx.timers.event_time(end)
        yield Bill(record.user, record.ts, record.amount, self.n.get() or 0)

    def on_timer(self, fired: Timer, ctx: Ctx, /) -> Iterator[Bill]:
        before = [ts for ts in self.times.get() if ts < fired.time - WINDOW_MS]
        yield Bill(ctx.key, fired.time, self.totals.get(fired.time, 0), len(before))
        self.totals.remove(fired.time)
        self.times.update(ts for ts in self.times.get() if ts >= fired.time - WINDOW_MS)


def highest(a: Any, b: Any) -> Any:
    return a if a.amount >= b.amount else b


def rows(first_row: int, end: int) -> list[tuple[Any, ...]]:
    """(user, amount, price, ts): the last ones close all windows."""
    made: list[tuple[Any, ...]] = []
    for n in range(first_row, end):
        user = f"user-{n * n * 7 % KEYS:03d}" if n % 17 else f"é{n % KEYS}"
        made.append((user, n * 37 % 1000 - 300, None if n % 5 == 0 else n * 0.25, n * 83))
    return [*made, ("end", 0, 0.0, 1_000_000)] if end == ALL else made


def build(stream: Any) -> Mapping[str, Any]:
    keyed = stream.key_by("user")
    totals = {
        "n": count(),
        "prices": count("price"),
        "total": sum_("amount"),
        "spent": sum_("price"),
        "mean": mean("amount"),
        "mean_price": mean("price"),
        "low": min_("price"),
        "high": max_("amount"),
        "doubled": sum_(pl.col("amount") * 2),
        "begin": first("price"),
        "end": last("user"),
        "width": Widest(),
    }
    panes = {"n": count(), "total": sum_("amount"), "high": max_("price"), "last": last("amount")}
    panes["width"] = Widest()
    return {
        "out-tumbling": keyed.window(tumbling("10 s")).aggregate(uid="tumbling", **totals),
        "out-sliding": keyed.window(sliding("10 s", "4 s")).aggregate(uid="sliding", **panes),
        "out-best": keyed.window(tumbling("10 s")).reduce(highest, uid="best"),
        "out-every": keyed.window(sliding("10 s", "5 s")).reduce(highest, uid="every"),
        "out-reduce": keyed.reduce(highest, uid="reduce"),
        "out-process": keyed.process(Bills(), uid="process"),
    }  # fmt: skip


def main(path: str, mode: str = "") -> None:
    spec = importlib.util.spec_from_file_location("runs", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules["runs"] = runs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runs)
    folder = runs.Folder(Path(path))
    assert not folder.path.exists(), f"{path} is there"
    if mode == "incremental":
        first, *later = (rows(n, n + 110) for n in range(0, PROMISED, 110))
        state = StateOptions(snapshots=EAGER)
        result = folder.run(build, *first, slots=2, later=later, state=state, retained=1).result
        print(result)
    else:
        for part in (rows(0, COMMITTED), rows(COMMITTED, PROMISED)):
            result = folder.run(build, *part, slots=2, checkpoint_interval="10 min", retained=1).result
            print(result)
    target = f"{path}-savepoint"
    copy_savepoint(open_store(path), open_store(target), SystemClock(), result.last_checkpoint_id)
    for there in (path, target):
        shutil.rmtree(Path(there, "copies"))  # to be small


if __name__ == "__main__":
    main(*sys.argv[1:])
