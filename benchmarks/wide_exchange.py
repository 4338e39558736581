"""What a record costs in a wide job, against a narrow one: cut by key, through a gate, into windows.

    python -m benchmarks.wide_exchange --parallelism 2 16 128

One of `p` upstream subtasks cuts batches of 40,000 rows among `p` subtasks, and one of these reads what `p`
upstream subtasks sent it through its gate into tumbling windows (count and sum, 100,000 keys). Nothing goes
over a socket: what is measured is what becomes more with `p`, the calls for few rows each. CPU time of one
thread, in ns a record; the batches are made before the clock starts. `--ungathered` hands each batch on
alone, as it comes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.keyed_state import SCHEMA, batches
from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.exchange.channel import LocalChannel
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.operator import Operator, OperatorContext
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import Records, Watermark, concatenated
from onceflow.runtime.slot.firing import fire_all
from onceflow.runtime.testing.harness import Collected

KEYS, ROWS, MAX_PARALLELISM = 100_000, 40_000, 1_024


def large(rows: int) -> Iterator[Records]:
    """Batches as a source hands them on."""
    parts: list[Records] = []
    for batch in batches(KEYS, rows, 100):
        parts.append(batch)
        if sum(map(len, parts)) >= ROWS:
            yield concatenated(parts)
            parts = []


def cut_ns(inputs: Sequence[Records], partitioner: Partitioner) -> tuple[float, list[Records]]:
    """What cutting costs a record; what subtask 0 gets of each batch."""
    mine = []
    started = time.thread_time_ns()
    for batch in inputs:
        for subtask, part in partitioner.split(batch):
            if subtask == 0:
                mine.append(part)
    return (time.thread_time_ns() - started) / sum(map(len, inputs)), mine


def read_ns(parts: Sequence[Records], parallelism: int, is_gathered: bool) -> float:
    """What reading costs a record: the parts come round by round from all channels, each with a watermark."""
    channels = [LocalChannel(1 << 40) for _ in range(parallelism)]
    gate = InputGate(channels, Alignment(parallelism))
    operator = open_operator()
    spent_ns = rows = 0
    for first in range(0, len(parts), parallelism):
        now = parts[first : first + parallelism]
        for channel, part in zip(channels, now, strict=False):
            channel.send(part)
            assert part.event_time is not None
            channel.send(Watermark(int(part.event_time.max()) - 2_000))
        started = time.thread_time_ns()
        if is_gathered:
            while (element := gate.receive()) is not None:
                if isinstance(element, Records):
                    operator.on_records(element)
        else:
            for part in now:
                operator.on_records(part)
        spent_ns += time.thread_time_ns() - started
        rows += sum(map(len, now))
    fire_all(operator, 1 << 60)
    return spent_ns / rows


def open_operator() -> Operator:
    described = WindowAggregate(
        "totals", ("user",), tumbling("10 s"), {"count": count(), "total": sum_("amount")}, SCHEMA
    )
    operator = described.create()
    context = OperatorContext("totals", 0, 1, MAX_PARALLELISM, range(MAX_PARALLELISM), ManualClock(0))
    operator.open(context, Collected())
    return operator


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parallelism", type=int, nargs="+", default=[2, 16, 128])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--ungathered", action="store_true")
    options = parser.parse_args()
    inputs = list(large(options.rows))
    for parallelism in options.parallelism:
        partitioner = Partitioner(("user",), MAX_PARALLELISM, parallelism)
        cutting, parts = cut_ns(inputs, partitioner)
        reading = read_ns(parts, parallelism, not options.ungathered)
        rows = np.mean([len(part) for part in parts])
        print(
            f"p={parallelism}: {cutting:.0f} ns to cut, {reading:.0f} to read batches of {rows:,.0f} rows; "
            f"{cutting + reading:.0f} ns a record"
        )


if __name__ == "__main__":
    main()
