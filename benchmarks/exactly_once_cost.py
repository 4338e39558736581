"""What exactly-once costs against at-least-once: the main job with both guarantees, in turn.

    python benchmarks/exactly_once_cost.py --interval '1 s' --interval '100 ms' --pairs 5

Each pair is two runs of benchmarks/main_job.py side by side in time, in changing order; the figure is the
median of the pairs' ratios of records per CPU-second (all processes of the job), with the lowest and the
highest. Both guarantees commit output in transactions after the checkpoint; at-least-once does not align
barriers. `--no-checkpoints` adds what both cost: a run whose only checkpoint is its last.
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
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--parallelism", type=int, default=1)
    parser.add_argument("--interval", action="append", help="of checkpoints; may be repeated")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--no-checkpoints", action="store_true")
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
                variants = [("exactly-once", interval), ("at-least-once", interval)]
                if options.no_checkpoints:
                    variants.append(("exactly-once", NEVER))
                compare(variants, options.pairs, rate)


def compare(variants: list[tuple[str, str]], pairs: int, rate: Callable[[str, str], float]) -> None:
    found: dict[tuple[str, str], list[float]] = {variant: [] for variant in variants}
    for number in range(pairs):
        for variant in variants if number % 2 == 0 else reversed(variants):
            found[variant].append(rate(*variant))
    first = variants[0]
    print(f"{first[0]}, {first[1]}: {statistics.median(found[first]):,.0f} k records/CPU-s, {pairs} pairs")
    for other in variants[1:]:
        ratios = [mine / theirs for mine, theirs in zip(found[first], found[other], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"  {statistics.median(ratios):.3f} of {other[0]}, {other[1]} ({spread})", flush=True)


if __name__ == "__main__":
    main()
