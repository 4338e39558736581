"""Memory over time: the main job at full speed for half an hour, its processes looked at from outside.

    python benchmarks/endurance.py --minutes 30

A process of its own feeds purchases without end, as fast as it can beside the job on the same machine; the
broker deletes what is old, so that the disk does not fill up. Told are the records per second and the
resident memory of the slot, the JVM and the driver, each half minute; the judgement compares the medians
of the second and the last quarter of the time (the first quarter warms up).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from benchmarks.kept_results import keep
from benchmarks.workload import Purchases, load
from onceflow.connectors.kafka.embedded import EmbeddedKafka

REPOSITORY = Path(__file__).resolve().parent.parent
ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))
PARTITIONS = 4
LOOK_S = 30.0
KEEP = {"retention.bytes": "400000000", "segment.bytes": "50000000"}
ENDLESS = 10**12


@dataclass(frozen=True, slots=True)
class Look:
    """The job at one moment: seconds since its first, records read per second since the last look, MB."""

    at_s: float
    k_per_s: float
    slot_mb: int
    jvm_mb: int
    driver_mb: int


def memory(job: psutil.Process) -> dict[str, int]:
    """Resident MB by part; of several slots the largest."""
    found = {"slot": 0, "jvm": 0, "driver": 0}
    for process in [job, *job.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            line, held = process.cmdline(), process.memory_info().rss >> 20
            part = "jvm" if "java" in line[0] else "slot" if "spark.daemon" in " ".join(line) else "driver"
            found[part] = max(found[part], held)
    return found


class Ends:
    """How many records a topic has had. The feeder is the slower one: what it wrote, the job has read."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "endurance"})
        self._topic = topic

    def end(self) -> int:
        places = [TopicPartition(self._topic, number) for number in range(PARTITIONS)]
        return sum(self._consumer.get_watermark_offsets(place, timeout=20)[1] for place in places)


def feed(servers: str) -> None:
    load(servers, "purchases", Purchases(ENDLESS, PARTITIONS), lambda done: None)


def run(options: argparse.Namespace, kafka: EmbeddedKafka, folder: Path) -> list[Look]:
    """Run the job and its feeder until the time is up; raises SystemExit if the job ends before."""
    kafka.create_topic("purchases", PARTITIONS, KEEP)
    kafka.create_topic("totals", PARTITIONS, KEEP)
    feeder = multiprocessing.get_context("spawn").Process(target=feed, args=(kafka.bootstrap_servers,))
    feeder.start()
    command = [
        ONCEFLOW, "run", str(REPOSITORY / "examples" / "windowed_totals.py"), "--master", "local[1]",
        "--parallelism", "1", "--checkpoint-dir", str(folder / "checkpoints"), "--json",
        "--", "--bootstrap-servers", kafka.bootstrap_servers, "--input", "purchases", "--output", "totals",
    ]  # fmt: skip
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    looks: list[Look] = []
    read = Ends(kafka.bootstrap_servers, "purchases")
    try:
        began_s, last_s, last = time.monotonic(), time.monotonic(), read.end()
        while time.monotonic() - began_s < options.minutes * 60:
            time.sleep(LOOK_S)
            if job.poll() is not None or not feeder.is_alive():
                raise SystemExit("the job or its feeder ended before the time was up")
            now_s, now, held = time.monotonic(), read.end(), memory(psutil.Process(job.pid))
            rate = (now - last) / (now_s - last_s) / 1000
            looks.append(
                Look(round(now_s - began_s, 1), round(rate, 1), held["slot"], held["jvm"], held["driver"])
            )
            last_s, last = now_s, now
            Console().print(
                f"{looks[-1].at_s / 60:5.1f} min {rate:7.1f} k/s, slot {held['slot']} MB, "
                f"JVM {held['jvm']} MB, driver {held['driver']} MB"
            )
    finally:
        feeder.kill()
        job.terminate()
        job.wait(60)
    return looks


def report(looks: list[Look]) -> None:
    quarter = max(1, len(looks) // 4)
    second, last = looks[quarter : 2 * quarter] or looks, looks[-quarter:]
    table = Table("MB", "second quarter", "last quarter", "most")
    found: dict[str, tuple[float, float, int]] = {}
    for part in ("slot_mb", "jvm_mb", "driver_mb"):
        held = [[getattr(look, part) for look in some] for some in (second, last, looks)]
        found[part] = (statistics.median(held[0]), statistics.median(held[1]), max(held[2]))
        table.add_row(part.removesuffix("_mb"), *(f"{cell:,.0f}" for cell in found[part]))
    Console().print(table)
    rates = [look.k_per_s for look in looks]
    result = {
        "benchmark": "endurance",
        "minutes": round(looks[-1].at_s / 60, 1),
        "median_k_per_s": statistics.median(rates),
        "second_quarter_last_quarter_most_mb": found,
        "looks": [asdict(look) for look in looks],
    }
    keep("endurance", result)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name:
        properties = {"log.retention.check.interval.ms": "5000"}
        with EmbeddedKafka(Path(name) / "kafka", properties=properties) as kafka:
            looks = run(options, kafka, Path(name))
    report(looks)


if __name__ == "__main__":
    main()
