"""How the main job's cost per record grows with keys, record size, partitions, checkpoints and slots.

    python benchmarks/curves.py                      # all of them
    python benchmarks/curves.py --curve keys --runs 2

Each point is a run of the main job as in main_job.py, judged before it counts; the points of a curve are
run in turns, so that a noisy minute falls on all of them. One JSON file and one plot per curve.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.kept_results import RESULTS, keep
from benchmarks.main_job import Measurement, run_once
from benchmarks.workload import Purchases, load
from onceflow.connectors.kafka.embedded import EmbeddedKafka

_INPUT_BYTES_MAX = 400_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of the main job; `x` is what varies along its curve."""

    x: float
    users: int = 100_000
    record_bytes: int = 101
    partitions: int = 4
    interval: str = "1 s"
    slots: int = 1

    def purchases(self, records: int) -> Purchases:
        """Purchases, as many as asked for, or as fit into the bytes that a curve may load."""
        fit = min(records, _INPUT_BYTES_MAX // self.record_bytes)
        return Purchases(fit, self.partitions, self.users, record_bytes=self.record_bytes)


USUAL = Point(0)
CURVES: dict[str, tuple[str, list[Point]]] = {
    "keys": ("keys", [replace(USUAL, x=n, users=n) for n in (1_000, 10_000, 100_000, 1_000_000, 10_000_000)]),
    "record-size": (
        "bytes of a record",
        [replace(USUAL, x=n, record_bytes=n) for n in (53, 101, 1_000, 10_000, 100_000)],
    ),
    "partitions": ("partitions", [replace(USUAL, x=n, partitions=n) for n in (1, 4, 20, 50, 200)]),
    "checkpoint-interval": (
        "ms between two checkpoints",
        [replace(USUAL, x=n, interval=f"{n} ms") for n in (50, 100, 250, 1_000, 10_000, 60_000)],
    ),
    "slots": ("slots on two cores", [replace(USUAL, x=n, slots=n) for n in (1, 2, 4)]),
}


class Runner:
    """One broker; each input is loaded once."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path, records: int) -> None:
        self._kafka = kafka
        self._folder = folder
        self._records = records
        self._topics: dict[Purchases, str] = {}

    def run(self, point: Point) -> Measurement:
        purchases = point.purchases(self._records)
        options = argparse.Namespace(
            kafka=self._kafka,
            master=f"local[{point.slots}]",
            parallelism=point.slots,
            checkpoint_interval=point.interval,
            guarantee="exactly-once",
            profile=None,
        )
        return run_once(
            options, self._kafka.bootstrap_servers, purchases, self._folder, self._topic_of(purchases)
        )

    def _topic_of(self, purchases: Purchases) -> str:
        if purchases not in self._topics:
            topic = f"purchases-{len(self._topics)}"
            self._kafka.create_topic(topic, purchases.partitions)
            load(self._kafka.bootstrap_servers, topic, purchases, lambda done: None)
            self._topics[purchases] = topic
        return self._topics[purchases]


def measure(name: str, runs: int, runner: Runner, console: Console) -> list[dict[str, Any]]:
    """The medians of a curve's points."""
    points = CURVES[name][1]
    found: dict[float, list[Measurement]] = {point.x: [] for point in points}
    for _ in range(runs):
        for point in points:
            found[point.x].append(runner.run(point))
            latest = found[point.x][-1]
            console.print(f"{name} {point.x:,}: {latest.k_per_cpu_s:,.0f} k records/CPU-s", highlight=False)
    return [
        {
            "x": point.x,
            "records": found[point.x][0].records,
            "k_per_cpu_s": round(statistics.median(m.k_per_cpu_s for m in found[point.x]), 2),
            "k_per_s": round(statistics.median(m.k_per_s for m in found[point.x]), 2),
            **nanoseconds(found[point.x]),
            "mb_per_cpu_s": round(
                statistics.median(m.k_per_cpu_s for m in found[point.x]) * point.record_bytes / 1000, 1
            ),
            "slot_rss_mb": max(m.slot_rss_mb for m in found[point.x]),
            "settings": {"users": point.users, "record_bytes": point.record_bytes, "slots": point.slots,
                         "partitions": point.partitions, "interval": point.interval},
        }
        for point in points
    ]  # fmt: skip


def nanoseconds(runs: list[Measurement]) -> dict[str, float]:
    """Medians of CPU per record: of those read alone, and of those read or written.

    With more keys a window has more results, up to one for each record: they are work, too.
    """
    return {
        "results_per_record": round(statistics.median(m.results / m.records for m in runs), 4),
        "ns_per_read": round(statistics.median(m.cpu_s * 1e9 / m.records for m in runs), 1),
        "ns_per_read_or_written": round(
            statistics.median(m.cpu_s * 1e9 / (m.records + m.results) for m in runs), 1
        ),
    }


def flatness(rows: list[dict[str, Any]], low: float = 1_000, high: float = 1_000_000) -> str:
    """How many times as much a record costs with many keys as with few."""
    of = {row["x"]: row for row in rows}
    read, both = (of[high][name] / of[low][name] for name in ("ns_per_read", "ns_per_read_or_written"))
    return (
        f"{low:,.0f} to {high:,.0f} keys: {read:.2f} times the CPU for each record read, "
        f"{both:.2f} times for each record read or written"
    )


def plot(name: str, rows: list[dict[str, Any]], target: Path) -> None:
    """Records per CPU-second over what varies. ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "onceflow"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.4))
    xs = [row["x"] for row in rows]
    axes.plot(xs, [row["k_per_cpu_s"] for row in rows], marker="o", color="#2a6f97")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xticks(xs, [f"{x:,.0f}" for x in xs])
    axes.minorticks_off()
    axes.set_xlabel(CURVES[name][0])
    axes.set_ylabel("k records per CPU-second")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


def table_of(name: str, rows: list[dict[str, Any]]) -> Table:
    titles = {
        "k records/CPU-s": "k_per_cpu_s",
        "k records/s": "k_per_s",
        "results/record": "results_per_record",
        "ns/record read": "ns_per_read",
        "ns/record read or written": "ns_per_read_or_written",
        "MB/CPU-s": "mb_per_cpu_s",
        "slot MB": "slot_rss_mb",
    }
    table = Table(CURVES[name][0], *titles)
    for row in rows:
        cells = (f"{row[key]:,.{3 if key == 'results_per_record' else 1}f}" for key in titles.values())
        table.add_row(f"{row['x']:,.0f}", *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--curve", choices=list(CURVES), action="append", help="may be given again")
    parser.add_argument("--records", type=int, default=4_000_000, help="less where they are large")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    console = Console()
    for name in options.curve or CURVES:
        with (
            tempfile.TemporaryDirectory(prefix="onceflow-bench-", ignore_cleanup_errors=True) as folder,
            EmbeddedKafka(Path(folder) / "kafka") as kafka,
        ):
            rows = measure(name, options.runs, Runner(kafka, Path(folder), options.records), console)
        console.print(table_of(name, rows))
        if name == "keys":
            console.print(flatness(rows), highlight=False, soft_wrap=True)
        path = keep(f"curve-{name}", {"curve": name, "points": rows}, options.results)
        try:
            plot(name, rows, path.with_suffix(".svg"))
        except ImportError:
            console.print("no plot: matplotlib is not installed (dependency group 'bench')")


if __name__ == "__main__":
    main()
