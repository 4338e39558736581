"""A million windows or timers that one watermark makes due: how long a barrier has to wait for them.

    python -m benchmarks.due_at_once [tumbling] [sliding] [session] [timers]

A barrier waits for one step of firing, and then the snapshot is taken. Prints CPU milliseconds: the longest
step, and the snapshot after the first one. Garbage is collected as in a slot: not meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow import Ctx, KeyedProcess, Timer, count, session, sliding, sum_, tumbling
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.operators.operator import MAIN, Operator, OperatorContext
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import Records, Watermark
from onceflow.runtime.slot.collector import collector_off
from onceflow.runtime.slot.firing import Firing
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader

RESULTS = 1_000_000
BATCH_ROWS = 40_000
KEY_GROUPS = 128
END_MS = 10**9


@dataclass(frozen=True, slots=True)
class Payment:
    user: int
    amount: int


class Reminder(KeyedProcess[int, Payment, Payment]):
    def process(self, record: Payment, ctx: Ctx) -> None:
        ctx.timers.event_time(10)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Payment]:
        yield Payment(ctx.key, 1)


class Counted:
    """Where results go."""

    rows = 0

    def emit(self, records: Records, tag: str = MAIN) -> None:
        self.rows += records.batch.num_rows


def window(assigned: Any) -> Operator:
    totals = {"n": count(), "total": sum_("amount")}
    return WindowAggregate("due", ("user",), assigned, totals, arrow_schema(Payment)).create()


def timers() -> Operator:
    rows = (RecordWriter(arrow_schema(Payment)), RecordReader(Payment))
    return ProcessConfig("due", Reminder(), ("user",), arrow_schema(Payment), *rows, True).create()


JOBS: dict[str, tuple[int, Callable[[], Operator]]] = {
    "tumbling": (RESULTS, lambda: window(tumbling("10 s"))),
    "sliding": (RESULTS // 10, lambda: window(sliding("10 s", "1 s"))),
    "session": (RESULTS, lambda: window(session("1 s"))),
    "timers": (RESULTS, timers),
}
"""How many keys make a million results, and the operator."""


def filled(operator: Operator, out: Counted, keys: int) -> Firing:
    """What fires the operator, which has a record of each key."""
    clock = SystemClock()
    operator.open(OperatorContext("due", 0, 1, KEY_GROUPS, range(KEY_GROUPS), clock), out)
    for first in range(0, keys, BATCH_ROWS):
        users = pa.array(np.arange(first, min(first + BATCH_ROWS, keys)))
        batch = pa.RecordBatch.from_arrays([users, users], schema=arrow_schema(Payment))
        times = np.full(len(users), 5)
        operator.on_records(Records(batch, times, hash_keys(batch, ["user"])))
    return Firing({"due": operator}, lambda _, time_ms: time_ms, lambda _: None, clock)


def measure(name: str) -> str:
    keys, create = JOBS[name]
    operator, out = create(), Counted()
    firing = filled(operator, out, keys)
    steps_ms: list[float] = []
    with collector_off():
        steps_ms.append(_cpu_ms(lambda: firing.take(Watermark(END_MS))))
        snapshot_ms = _cpu_ms(operator.snapshot)
        while firing.is_due:
            steps_ms.append(_cpu_ms(firing.advance))
    return (
        f"{name}: {out.rows:,} results of {keys:,} keys in {len(steps_ms)} steps, the first "
        f"{steps_ms[0]:.0f} ms, the longest {max(steps_ms):.0f} ms; the snapshot {snapshot_ms:.0f} ms"
    )


def _cpu_ms(call: Any) -> float:
    began_s = time.thread_time()
    call()
    return (time.thread_time() - began_s) * 1e3


if __name__ == "__main__":
    for job in sys.argv[1:] or JOBS:
        print(measure(job), flush=True)
