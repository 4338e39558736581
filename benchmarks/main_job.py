"""The main job's speed: records per CPU-second of all its processes, from the first record to the end.

    python benchmarks/main_job.py --records 4000000 --master 'local[1]' --runs 3

Starts the embedded broker, loads the input, runs examples/windowed_totals.py to the end of it, judges
the output with `onceflow verify`, and only then counts the run. CPU is that of the driver, the JVM and
the slots (the broker apart), read from the operating system; start-up is measured apart. The latest call's
figures are in benchmarks/results/, with machine and commit. Machines are noisy: quote medians, and compare
only what ran side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.kept_results import keep
from benchmarks.sampler import CpuSampler
from onceflow.connectors.kafka.embedded import EmbeddedKafka

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "scripts"))
from purchases import Purchases, load  # noqa: E402 - a script, not a package

ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))
EXAMPLE = str(REPOSITORY / "examples" / "windowed_totals.py")
PARTITIONS = 4
RUN_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run whose output was right."""

    records: int
    start_s: float
    """From the command to the first record."""
    wall_s: float
    """From the first record until everything is committed."""
    cpu_s: float
    """CPU seconds of all the job's processes in that time."""
    rss_mb: int
    """The most that all of them together held."""
    slot_rss_mb: int
    results: int
    """Records written."""

    @property
    def k_per_cpu_s(self) -> float:
        return self.records / self.cpu_s / 1000

    @property
    def k_per_s(self) -> float:
        return self.records / self.wall_s / 1000


def judge(broker: str, topic: str, output: str) -> None:
    """Only a right result counts: SystemExit for another one."""
    command = [
        ONCEFLOW, "verify", "--bootstrap-servers", broker, "--input", topic, "--output", output,
        "--group-by", "user", "--time", "ts", "--window", "10 s", "--count", "count", "--sum", "total=amount",
    ]  # fmt: skip
    judged = subprocess.run(command, capture_output=True, text=True)
    if judged.returncode != 0:
        raise SystemExit(f"the output is wrong:\n{judged.stdout}{judged.stderr}")


def run_once(
    options: argparse.Namespace,
    broker: str,
    purchases: Purchases,
    folder: Path,
    topic: str = "purchases",
    check: Callable[[str, str, str], None] = judge,
    program: Sequence[str] = (EXAMPLE, "--"),
    environment: Mapping[str, str] | None = None,
) -> Measurement:
    """One run, judged by `check` (broker, input, output). SystemExit if it fails or its output is wrong.
    `program`: the job and what comes before its other arguments. `environment`: more of it, for the job."""
    output = f"totals-{time.time_ns()}"
    options.kafka.create_topic(output, purchases.partitions)
    command = [
        ONCEFLOW, "run", program[0],
        "--master", options.master, "--parallelism", str(options.parallelism),
        "--checkpoint-dir", str(folder / output), "--checkpoint-interval", options.checkpoint_interval,
        "--guarantee", options.guarantee, "--json",
        *program[1:], "--bootstrap-servers", broker, "--input", topic, "--output", output,
        "--until", "latest",
    ]  # fmt: skip
    started_s = time.time()
    job = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    sampler = CpuSampler(job.pid)
    profiler: subprocess.Popen[bytes] | None = None
    events = []
    assert job.stdout is not None
    try:
        for line in job.stdout:
            if line.startswith("{"):
                events.append(json.loads(line))
                if events[-1]["event"] == "slots_started" and options.profile:
                    profiler = start_profiler(events[-1]["slots"][0]["pid"], options.profile)
        if job.wait(RUN_TIMEOUT_S) != 0:
            raise SystemExit(f"the job failed: {events[-1] if events else 'no events'}")
    except BaseException:
        job.terminate()  # or it would wait for the broker that goes now
        raise
    sampler.close()
    if profiler is not None:
        profiler.wait(30)
    check(broker, topic, output)
    first_s = next(e["first_record_ms"] for e in events if e["event"] == "first_record") / 1000
    end_s = next(e["ts_ms"] for e in events if e["event"] == "job_finished") / 1000
    return Measurement(
        purchases.total,
        start_s=first_s - started_s,
        wall_s=end_s - first_s,
        cpu_s=sampler.cpu_between(first_s, end_s),
        rss_mb=sampler.rss_max >> 20,
        slot_rss_mb=sampler.slot_rss_max >> 20,
        results=records_written(events),
    )


def records_written(events: list[dict[str, Any]]) -> int:
    """How many records the job wrote, by its last word on its progress, which it says when it is over."""
    return [int(event["records_out"]) for event in events if event["event"] == "progress"][-1]


def start_profiler(pid: int, target: str) -> subprocess.Popen[bytes]:
    """py-spy, native frames included: a flame graph of one slot. The slot stands still while a sample is
    taken, so there are not more of them."""
    py_spy = str(Path(sys.executable).with_name("py-spy"))
    command = [py_spy, "record", "--native", "--rate", "25", "--output", target, "--pid", str(pid)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def report(options: argparse.Namespace, runs: list[Measurement]) -> None:
    """The table, and the file that keeps it."""
    table = Table("run", "k records/CPU-s", "k records/s", "start s", "CPU s", "RSS MB", "slot MB")
    for number, run in enumerate(runs, 1):
        cells = (run.k_per_cpu_s, run.k_per_s, run.start_s, run.cpu_s, run.rss_mb, run.slot_rss_mb)
        table.add_row(str(number), *(f"{cell:,.1f}" for cell in cells))
    Console().print(table)
    median = statistics.median(run.k_per_cpu_s for run in runs)
    print(f"median: {median:,.0f} k records per CPU-second on {options.master}, {options.guarantee}")
    result = {
        "benchmark": "main_job",
        "master": options.master,
        "parallelism": options.parallelism,
        "guarantee": options.guarantee,
        "checkpoint_interval": options.checkpoint_interval,
        "median_k_per_cpu_s": round(median, 1),
        "runs": [asdict(run) for run in runs],
    }
    keep("main_job", result)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--master", default="local[1]")
    parser.add_argument("--parallelism", type=int, default=1)
    parser.add_argument("--guarantee", default="exactly-once")
    parser.add_argument("--checkpoint-interval", default="1 s")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", nargs="?", const="profile.svg", help="flame graph of slot 0 (py-spy)")
    options = parser.parse_args()
    purchases = Purchases(options.records, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name:
        folder = Path(name)
        with EmbeddedKafka(folder / "kafka") as kafka:
            options.kafka = kafka
            kafka.create_topic("purchases", PARTITIONS)
            load(kafka.bootstrap_servers, "purchases", purchases, lambda done: None)
            runs = [
                run_once(options, kafka.bootstrap_servers, purchases, folder) for _ in range(options.runs)
            ]
    report(options, runs)


if __name__ == "__main__":
    main()
