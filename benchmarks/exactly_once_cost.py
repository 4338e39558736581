"""What exactly-once costs: the main job's CPU per record with it, against at-least-once or no checkpoints.

    python -m benchmarks.exactly_once_cost --interval '1 s' --minutes 9
    python -m benchmarks.exactly_once_cost --interval '100 ms' --minutes 9
    python -m benchmarks.exactly_once_cost --interval '1 s' --minutes 9 --against no-checkpoints

Single runs on one machine differ by a tenth and more, and what makes them differ lasts for seconds to
minutes: a question of 5 % needs pairs that stand close together in time. So:

- A run has 8,000,000 records: eight seconds and as many checkpoints at 1 s. The start is not in its figure,
  but the first reads and the last checkpoint are, in both variants alike: they make a difference look smaller
  by about their share, a tenth.
- Runs come in blocks of four, A B B A: what grows or falls steadily through a block is in both sums alike. A
  block's ratio is the CPU of its two runs with exactly-once over that of its two runs without.
- The first run of all is not counted: the broker has just started, files are not in memory.
- There are as many blocks as fit into `--minutes`, for each interval. How many does not depend on what they
  show: to go on until the answer pleases would bias it.
- The figure is the mean of the blocks' ratios (of their logarithms) with its interval of confidence of 95 %
  by Student's t, and beside it the ratio of all CPU, and each block's. The interval says if the question is
  answered: "at most 5 %" is if its upper end is below 5 %.

Every run is judged before it counts; the answer is computed once. With two slots (the default) half of the
records cross slots and barriers are aligned, all that exactly-once adds; with one there is nothing to align.
`at-least-once` commits its output in transactions as well, so that ratio is the cost of alignment. With
`no-checkpoints` the other side takes only the last checkpoint: its ratio is an upper bound of what
exactly-once costs, transactions included.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.judging import Judge
from benchmarks.main_job import PARTITIONS, run_once
from benchmarks.peers.peer import MAIN
from benchmarks.workload import Purchases, load
from onceflow.cli.audit_topics import TopicReader
from onceflow.connectors.kafka.embedded import EmbeddedKafka

TOPIC = "purchases"
NEVER = "10 min"
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Student's t for 1, 2, ... degrees of freedom; for more the last is a little too wide."""


@dataclass(frozen=True, slots=True)
class Variant:
    guarantee: str
    interval: str


@dataclass(frozen=True, slots=True)
class Block:
    """CPU-seconds of two runs with exactly-once and of two without."""

    with_it: float
    without: float

    @property
    def ratio(self) -> float:
        return self.with_it / self.without


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost as a part of the CPU without it: 0.03 is 3 % more."""

    mean: float
    low: float
    high: float
    of_sums: float


def cost_of(blocks: Sequence[Block]) -> Cost:
    """The mean with its interval of confidence; at least two blocks."""
    logarithms = [math.log(block.ratio) for block in blocks]
    t = _T_975[min(len(blocks) - 1, len(_T_975)) - 1]
    middle = statistics.mean(logarithms)
    width = t * statistics.stdev(logarithms) / math.sqrt(len(blocks))
    of_sums = sum(block.with_it for block in blocks) / sum(block.without for block in blocks)
    return Cost(math.exp(middle) - 1, math.exp(middle - width) - 1, math.exp(middle + width) - 1, of_sums - 1)


def blocks_within(
    minutes: float,
    with_it: Callable[[], float],
    without: Callable[[], float],
    now_s: Callable[[], float] = time.monotonic,
) -> Iterator[Block]:
    """Two, and then as many as fit. Both functions give the CPU-seconds of a run."""
    start_s = now_s()
    done = 0
    while done < 2 or (now_s() - start_s) * (done + 1) / done <= minutes * 60:
        first, second, third, last = with_it(), without(), without(), with_it()
        done += 1
        yield Block(first + last, second + third)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--interval", action="append", help="of checkpoints; may be repeated")
    parser.add_argument("--minutes", type=float, default=9.0, help="for each interval")
    parser.add_argument("--against", choices=("at-least-once", "no-checkpoints"), default="at-least-once")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name,
        EmbeddedKafka(Path(name) / "kafka") as kafka,
        contextlib.closing(TopicReader(kafka.bootstrap_servers, {})) as reader,
    ):
        cpu_s = runner(options, kafka, reader, Path(name))
        for interval in options.interval or ["1 s", "100 ms"]:
            ours = Variant("exactly-once", interval)
            other = (
                Variant("exactly-once", NEVER)
                if options.against == "no-checkpoints"
                else Variant("at-least-once", interval)
            )
            cpu_s(ours)
            found = []
            for block in blocks_within(options.minutes, partial(cpu_s, ours), partial(cpu_s, other)):
                found.append(block)
                print(f"  block {len(found)}: {block.ratio - 1:+.1%}", flush=True)
            report(interval, options, found)


def runner(
    options: argparse.Namespace, kafka: EmbeddedKafka, reader: TopicReader, folder: Path
) -> Callable[[Variant], float]:
    """Loads the input; the function runs a variant and gives its CPU-seconds."""
    purchases = Purchases(options.records, PARTITIONS)
    kafka.create_topic(TOPIC, PARTITIONS)
    load(kafka.bootstrap_servers, TOPIC, purchases, lambda done: None)
    judge = Judge(reader, TOPIC, MAIN)

    def require_right(broker: str, topic: str, output: str) -> None:
        verdict = judge.verdict(output)
        if not verdict.is_right:
            raise SystemExit(f"the output is wrong: {verdict}")

    def cpu_s(variant: Variant) -> float:
        settings = argparse.Namespace(
            kafka=kafka,
            master=options.master,
            parallelism=options.parallelism,
            checkpoint_interval=variant.interval,
            guarantee=variant.guarantee,
            profile=None,
        )
        return run_once(settings, kafka.bootstrap_servers, purchases, folder, TOPIC, require_right).cpu_s

    return cpu_s


def report(interval: str, options: argparse.Namespace, blocks: Sequence[Block]) -> None:
    cost = cost_of(blocks)
    rate = 2 * len(blocks) * options.records / sum(block.with_it for block in blocks) / 1000
    print(f"exactly-once, {interval}, {options.master}: {rate:,.0f} k records/CPU-s")
    print(
        f"  costs {cost.mean:+.1%} CPU against {options.against} (95 %: {cost.low:+.1%} to {cost.high:+.1%}, "
        f"{len(blocks)} blocks of ABBA; of all CPU {cost.of_sums:+.1%})",
        flush=True,
    )


if __name__ == "__main__":
    main()
