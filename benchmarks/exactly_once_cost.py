"""What exactly-once costs: the main job with checkpoints, against at-least-once and against none.

    python -m benchmarks.exactly_once_cost --interval '1 s' --interval '100 ms' --rounds 3

Each round is a run of benchmarks/main_job.py for each variant side by side in time, in changing order; the
figure is the median of the rounds' ratios of records per CPU-second (all processes of the job), with the
lowest and the highest. `at-least-once` does not align barriers, but commits its output in transactions as
well, so that ratio is the cost of alignment alone. The run whose only checkpoint is its last pays for
neither checkpoints nor transactions: that ratio is an upper bound of what exactly-once costs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.main_job import PARTITIONS, run_once
from benchmarks.workload import Purchases, load
from onceflow.connectors.kafka.embedded import EmbeddedKafka

NEVER = "10 min"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--parallelism", type=int, default=1)
    parser.add_argument("--interval", action="append", help="of checkpoints; may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.profile = None
    purchases = Purchases(options.records, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name:
        folder = Path(name)
        with EmbeddedKafka(folder / "kafka") as kafka:
            options.kafka = kafka
            kafka.create_topic("purchases", PARTITIONS)
            load(kafka.bootstrap_servers, "purchases", purchases, lambda done: None)

            def rate(guarantee: str, interval: str) -> float:
                options.guarantee, options.checkpoint_interval = guarantee, interval
                return run_once(options, kafka.bootstrap_servers, purchases, folder).k_per_cpu_s

            for interval in options.interval or ["1 s", "100 ms"]:
                variants = [("exactly-once", interval), ("at-least-once", interval), ("exactly-once", NEVER)]
                compare(variants, options.rounds, rate)


def compare(variants: list[tuple[str, str]], rounds: int, rate: Callable[[str, str], float]) -> None:
    found: dict[tuple[str, str], list[float]] = {variant: [] for variant in variants}
    for number in range(rounds):
        for variant in variants if number % 2 == 0 else reversed(variants):
            found[variant].append(rate(*variant))
    first = variants[0]
    print(f"{first[0]}, {first[1]}: {statistics.median(found[first]):,.0f} k records/CPU-s, {rounds} rounds")
    for other in variants[1:]:
        ratios = [mine / theirs for mine, theirs in zip(found[first], found[other], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"  {statistics.median(ratios):.3f} of {other[0]}, {other[1]} ({spread})", flush=True)


if __name__ == "__main__":
    main()
