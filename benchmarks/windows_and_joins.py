"""Sessions, sliding windows, window joins and interval joins beside Flink's: records per CPU-second.

    python -m benchmarks.windows_and_joins --keys 1000 100000 1000000 --runs 1

Both make the same rows by the same formula in the process that computes, checkpoint each second, exactly
once, and have one subtask: no broker and no JSON, which would be most of the cost. Each job runs with a few
records and with many, onceflow with more since it is done sooner; the figure is the CPU of the difference. So
the start, and most of what a JVM needs to warm up, is in none. A figure counts only if both have found as
many rows with the same sum in the few records.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cpu_of_jobs import Failed, ended
from benchmarks.environments import class_path, compile_java, install
from benchmarks.kept_results import keep
from benchmarks.peers.flink import ENVIRONMENT, OPTIONS
from benchmarks.peers.peer import FOLDER
from onceflow.runtime.environment.java import find_java

KINDS = ("session", "sliding", "window_join", "interval_join")
PROGRAM = Path(__file__).parent / "jobs" / "windows_and_joins.py"
Command = Callable[[str, int, int, Path], list[str]]
"""From kind, keys, records and a folder to a job's command."""
OURS = "onceflow"
FEW = 500_000
OURS_MORE = 4
"""How many times as many records onceflow gets."""
Line = dict[str, Any]
Found = tuple[int, int]
"""How many rows a job found, and the sum of them."""


def ours(kind: str, keys: int, records: int, folder: Path) -> list[str]:
    command = [str(Path(sys.executable).with_name("onceflow")), "run", str(PROGRAM)]
    command += ["--master", "threads[1]", "--parallelism", "1", "--checkpoint-interval", "1 s"]
    return [*command, "--checkpoint-dir", str(folder), "--", kind, str(keys), str(records)]


def flink() -> Command:
    installed = install(ENVIRONMENT, print)
    jars = [*installed.package_jars("pyflink/lib/*.jar"), *installed.jars()]
    name = "FlinkWindowsAndJoins"
    classes = compile_java([FOLDER / "java" / f"{name}.java"], jars, name)
    start = [str(find_java().executable), *OPTIONS, "-cp", class_path([classes, *jars]), name]
    return lambda kind, keys, records, folder: [*start, kind, str(keys), str(records), folder.as_uri()]


def run(command: Sequence[str]) -> tuple[float, Found]:
    """CPU seconds of a job and of all its processes, and what it found. Raises Failed."""
    done = ended(command)
    found = found_in(done.text)
    if found is None:
        raise Failed(f"it did not say what it found: {done.text[-500:]}")
    return done.cpu_s, found


def found_in(text: str) -> Found | None:
    """What a job says at its end: `found 12 34`, or a row of columns `rows` and `total`."""
    match = re.search(r"found\D+(\d+)\s+(\d+)\s*$", text, re.MULTILINE) or re.search(
        r"found.*rows\D+(\d+)\D+(\d+)", text
    )
    return None if match is None else (int(match[1]), int(match[2]))


def measured(command: Command, kind: str, keys: int, records: int) -> tuple[float, Found]:
    """Thousands of records per CPU-second, and what was found in FEW of them. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name:
        few_s, found = run(command(kind, keys, FEW, Path(name) / "few"))
        all_s, _ = run(command(kind, keys, records, Path(name) / "all"))
    return (records - FEW) / (all_s - few_s) / 1000, found


def line_of(kind: str, keys: int, engines: Mapping[str, Command], options: argparse.Namespace) -> Line:
    """The rates of each engine, or why it has none. SystemExit if they have found different things."""
    rates: dict[str, list[float]] = {}
    failures: dict[str, str] = {}
    seen = set[Found]()
    for _ in range(options.runs):
        for name, command in engines.items():
            records = options.records * (OURS_MORE if name == OURS else 1)
            try:
                rate, found = measured(command, kind, keys, records)
            except Failed as error:
                failures[name] = str(error)
                continue
            rates.setdefault(name, []).append(round(rate, 1))
            seen.add(found)
    if len(seen) > 1:
        raise SystemExit(f"{kind} of {keys:,} keys: the engines have found {sorted(seen)}")
    medians = {name: statistics.median(of) for name, of in rates.items()}
    line = {"kind": kind, "keys": keys, "found": sorted(seen), "k_per_cpu_s": rates, "failures": failures}
    return {**line, **medians}


def compare(options: argparse.Namespace) -> list[Line]:
    engines: dict[str, Command] = {OURS: ours} | ({} if options.alone else {"flink": flink()})
    lines = []
    for kind in options.kinds:
        for keys in options.keys:
            lines.append(line_of(kind, keys, engines, options))
            print(json.dumps(lines[-1]), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--keys", nargs="+", type=int, default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--records", type=int, default=2_000_000, help="for Flink")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="without Flink")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    lines = compare(options)
    table = Table("kind", "keys", "k records/CPU-s", "Flink's", "ratio")
    for line in lines:
        mine, theirs = line.get(OURS), line.get("flink")
        cells = [f"{rate:,.0f}" if rate else "-" for rate in (mine, theirs)]
        ratio = f"{mine / theirs:.1f}" if mine and theirs else "-"
        table.add_row(line["kind"], f"{line['keys']:,}", *cells, ratio)
    Console().print(table)
    if not options.alone:
        settings = {"records": options.records, "runs": options.runs, "load_at_start": round(load, 1)}
        print(keep("windows-and-joins", {"benchmark": "windows_and_joins", **settings, "lines": lines}))


if __name__ == "__main__":
    main()
