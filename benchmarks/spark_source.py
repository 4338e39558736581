"""Our source of Spark against Spark's own: records per CPU-second, from Kafka into nothing.

    python benchmarks/spark_source.py --records 2000000 --passes 3

Each source has a Spark session of its own (Spark's Kafka package is there for 4.2.0, ours runs on the
installed PySpark), reads the same topic some times over, and the first pass is left out: it warms the JVM
up. CPU is that of all processes of the session, from outside. The sources take turns, and what is told is
the median of the passes. Shapes: `value` (only the value is asked for), `raw` (all columns), `json` (three
fields of each value; Spark's side by from_json). `--limit N` reads in batches of about N records.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.environments import install
from benchmarks.peers.spark import ENVIRONMENT
from benchmarks.sampler import CpuSampler
from benchmarks.workload import Purchases, load
from onceflow.connectors.kafka.embedded import EmbeddedKafka

REPOSITORY = Path(__file__).resolve().parent.parent
PROGRAM = Path(__file__).with_name("jobs") / "spark_read.py"
PARTITIONS = 4
TIMEOUT_S = 900.0


def measure(
    source: str, shape: str, servers: str, options: argparse.Namespace, total: int
) -> list[tuple[float, float]]:
    """Thousands of records per CPU-second and per second, of each pass but the first."""
    python, jars = sys.executable, ""
    if source == "spark":
        installed = install(ENVIRONMENT, print)
        python, jars = str(installed.python), ",".join(map(str, installed.jars()))
    arguments = [source, shape, servers, "input", str(options.passes + 1), str(options.limit), jars]
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
    found = []
    for line in child.stdout:
        words = line.split()
        if words[:1] == ["begin"]:
            began_s = float(words[2])
        elif words[:1] == ["end"]:
            ended_s, rows = float(words[2]), int(words[3])
            if rows != total:
                raise SystemExit(f"{source} read {rows} of {total} records")
            time.sleep(0.2)  # the sampler's last look at this pass
            if words[1] != "0":
                cpu_s = sampler.cpu_between(began_s, ended_s)
                found.append((total / cpu_s / 1000, total / (ended_s - began_s) / 1000))
    sampler.close()
    if child.wait(TIMEOUT_S) or not found:
        raise SystemExit(f"reading with {source} failed: run again with --verbose")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--passes", type=int, default=3, help="measured, after one that is not")
    parser.add_argument("--rounds", type=int, default=1, help="sessions of each source, in turn")
    parser.add_argument("--limit", type=int, default=0, help="records per batch; 0: all in one")
    parser.add_argument("--shapes", default="value,raw,json")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    purchases = Purchases(options.records, PARTITIONS)
    table = Table("shape", "onceflow k/CPU-s", "Spark k/CPU-s", "ratio", "onceflow k/s", "Spark k/s")
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder)) as kafka:
        kafka.create_topic("input", PARTITIONS)
        load(kafka.bootstrap_servers, "input", purchases, lambda done: None)
        for shape in options.shapes.split(","):
            ran: dict[str, list[tuple[float, float]]] = {"onceflow": [], "spark": []}
            for _ in range(options.rounds):
                for source, figures in ran.items():
                    figures += measure(source, shape, kafka.bootstrap_servers, options, purchases.total)
            cpu = {name: statistics.median(each for each, _ in figures) for name, figures in ran.items()}
            wall = {name: statistics.median(each for _, each in figures) for name, figures in ran.items()}
            table.add_row(
                shape,
                f"{cpu['onceflow']:.0f}",
                f"{cpu['spark']:.0f}",
                f"{cpu['onceflow'] / cpu['spark']:.2f}",
                f"{wall['onceflow']:.0f}",
                f"{wall['spark']:.0f}",
            )
            Console().print(table)


if __name__ == "__main__":
    main()
