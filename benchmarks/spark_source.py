"""Our source of Spark against Spark's own: CPU for each record and for each query, from Kafka into nothing.

    python -m benchmarks.spark_source --records 5000000 --few 1000000 --passes 3

Each source has a Spark session of its own (Spark's Kafka package is there for 4.2.0, ours runs on the
installed PySpark). Each pass is a query that reads a topic to its end: in turns one with few records and
one with many, after one of each that is not counted and warms the JVM up. CPU is that of all processes of
the session, from outside; what is told is the median of the passes. A line through both sizes tells apart
what a query takes once (its start: processes, imports, plans) and what it takes for each record:

    slope = (CPU of many - CPU of few) / (many - few),   start = CPU of few - slope * few

Shapes: `value` (only the value is asked for), `raw` (all columns), `headers` (those, too; the records have
none), `json` (three fields of each value; Spark's side by from_json). `--limit N` reads in batches of about
N records. `--conf NAME=VALUE`: a setting of both sessions.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.environments import install
from benchmarks.peers.spark import ENVIRONMENT
from benchmarks.sampler import CpuSampler
from benchmarks.workload import Purchases, load
from onceflow.connectors.kafka.embedded import EmbeddedKafka

PROGRAM = Path(__file__).with_name("jobs") / "spark_read.py"
PARTITIONS = 4
TIMEOUT_S = 900.0
WARM_UP = 2
"""Passes that are not counted."""


@dataclass(slots=True)
class Passes:
    """CPU seconds and seconds of each pass over so many records."""

    records: int
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one source costs in one shape."""

    few: Passes
    many: Passes

    @property
    def record_ns(self) -> float:
        """CPU of one record more."""
        return self._slope(statistics.median(self.few.cpu_s), statistics.median(self.many.cpu_s))

    @property
    def record_ns_seen(self) -> tuple[float, float]:
        """The least and the most among the pairs of passes, one after the other."""
        slopes = [self._slope(few, many) for few, many in zip(self.few.cpu_s, self.many.cpu_s, strict=True)]
        return min(slopes), max(slopes)

    @property
    def start_s(self) -> float:
        """CPU of a query without records."""
        return statistics.median(self.few.cpu_s) - self.record_ns * self.few.records / 1e9

    @property
    def thousands_per_cpu_s(self) -> float:
        """Thousands of records per CPU-second of the large passes, starts included."""
        return self.many.records / statistics.median(self.many.cpu_s) / 1000

    @property
    def thousands_per_s(self) -> float:
        return self.many.records / statistics.median(self.many.wall_s) / 1000

    def _slope(self, few_s: float, many_s: float) -> float:
        return (many_s - few_s) / (self.many.records - self.few.records) * 1e9


def measure(source: str, shape: str, servers: str, options: argparse.Namespace, cost: Cost) -> None:
    """One session of a source; adds its passes to `cost`."""
    python, jars = sys.executable, ""
    if source == "spark":
        installed = install(ENVIRONMENT, print)
        python, jars = str(installed.python), ",".join(map(str, installed.jars()))
    passes = str(2 * options.passes + WARM_UP)
    arguments = [source, shape, servers, "few,many", passes, str(options.limit), jars, *options.conf]
    child = subprocess.Popen(
        [python, str(PROGRAM), *arguments],
        stdout=subprocess.PIPE,
        stderr=None if options.verbose else subprocess.DEVNULL,
        env={**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"},
        text=True,
    )
    assert child.stdout is not None
    sampler = CpuSampler(child.pid)
    began_s = 0.0
    for line in child.stdout:
        words = line.split()
        if words[:1] == ["begin"]:
            began_s = float(words[3])
        elif words[:1] == ["end"]:
            number, topic, ended_s, rows = int(words[1]), words[2], float(words[3]), int(words[4])
            passed = cost.few if topic == "few" else cost.many
            if rows != passed.records:
                raise SystemExit(f"{source} read {rows} of {passed.records} records")
            time.sleep(0.2)  # the sampler's last look at this pass
            if number >= WARM_UP:
                passed.cpu_s.append(sampler.cpu_between(began_s, ended_s))
                passed.wall_s.append(ended_s - began_s)
    sampler.close()
    if child.wait(TIMEOUT_S) or not cost.many.cpu_s:
        raise SystemExit(f"reading with {source} failed: run again with --verbose")


def show(shape: str, costs: dict[str, Cost]) -> None:
    titles = ("ns of CPU per record", "least, most", "start, CPU-s", "k/CPU-s with starts", "k/s")
    table = Table("source", *titles, title=shape)
    for name, cost in costs.items():
        least, most = cost.record_ns_seen
        table.add_row(
            name,
            f"{cost.record_ns:.0f}",
            f"{least:.0f}, {most:.0f}",
            f"{cost.start_s:.2f}",
            f"{cost.thousands_per_cpu_s:.0f}",
            f"{cost.thousands_per_s:.0f}",
        )
    ours, theirs = costs["onceflow"], costs["spark"]
    table.add_row(
        "onceflow's rate / Spark's",
        f"{theirs.record_ns / ours.record_ns:.2f}",
        "",
        f"{theirs.start_s / ours.start_s:.2f}",
        f"{ours.thousands_per_cpu_s / theirs.thousands_per_cpu_s:.2f}",
        f"{ours.thousands_per_s / theirs.thousands_per_s:.2f}",
    )
    Console(width=110).print(table)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5_000_000, help="of a large pass")
    parser.add_argument("--few", type=int, default=1_000_000, help="records of a small pass")
    parser.add_argument("--passes", type=int, default=3, help="measured, of each size")
    parser.add_argument("--rounds", type=int, default=1, help="sessions of each source, in turn")
    parser.add_argument("--limit", type=int, default=0, help="records per batch; 0: all in one")
    parser.add_argument("--shapes", default="value,raw,json")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(arguments)
    if not 0 < options.few < options.records:
        parser.error(f"--few {options.few} must be less than --records {options.records}")
    return options


def main() -> None:
    options = parsed()
    inputs = {
        name: Purchases(records, PARTITIONS)
        for name, records in (("few", options.few), ("many", options.records))
    }
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder)) as kafka:
        for topic, purchases in inputs.items():
            kafka.create_topic(topic, PARTITIONS)
            load(kafka.bootstrap_servers, topic, purchases, lambda done: None)
        for shape in options.shapes.split(","):
            costs = {
                source: Cost(*(Passes(purchases.total) for purchases in inputs.values()))
                for source in ("onceflow", "spark")
            }
            for _ in range(options.rounds):
                for source, cost in costs.items():
                    measure(source, shape, kafka.bootstrap_servers, options, cost)
            show(shape, costs)


if __name__ == "__main__":
    main()
