"""Joins and sessions of skewed keys against even ones: records per CPU-second, and the ratio.

    python -m benchmarks.skewed_keys --keys 10000 --runs 3

Skewed: one key has four rows in ten, the others are spread as by Zipf's law. Even and skewed take turns, with
few records and with many each; the figure is the CPU of the difference, as in windows_and_joins.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.kept_results import keep
from benchmarks.windows_and_joins import FEW, Line, measured

KINDS = ("regular_join", "interval_join", "window_join", "session")
SPREADS = ("even", "skewed")
PROGRAM = Path(__file__).parent / "jobs" / "skewed_keys.py"


def command(spread: str, kind: str, keys: int, records: int, folder: Path) -> list[str]:
    made = [str(Path(sys.executable).with_name("onceflow")), "run", str(PROGRAM)]
    made += ["--master", "threads[1]", "--parallelism", "1", "--checkpoint-interval", "1 s"]
    return [*made, "--checkpoint-dir", str(folder), "--", kind, spread, str(keys), str(records)]


def line_of(kind: str, keys: int, records: int, runs: int) -> Line:
    rates: dict[str, list[float]] = {spread: [] for spread in SPREADS}
    found: dict[str, list[int]] = {}
    for _ in range(runs):
        for spread in SPREADS:
            rate, of_few = measured(partial(command, spread), kind, keys, records)
            rates[spread].append(round(rate, 1))
            found[spread] = list(of_few)
    medians = {spread: statistics.median(each) for spread, each in rates.items()}
    ratio = round(medians["even"] / medians["skewed"], 2)
    return {"kind": kind, "keys": keys, "found": found, "k_per_cpu_s": rates, **medians, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=4 * FEW)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    lines = []
    table = Table("kind", "even, k records/CPU-s", "skewed", "even / skewed", "rows found in few records")
    for kind in options.kinds:
        line = line_of(kind, options.keys, options.records, options.runs)
        print(json.dumps(line), flush=True)
        lines.append(line)
        found = " / ".join(f"{line['found'][spread][0]:,}" for spread in SPREADS)
        rates = [f"{line[spread]:,.0f}" for spread in SPREADS]
        table.add_row(kind, *rates, f"{line['ratio']:.2f}", found)
    Console().print(table)
    settings = {"records": options.records, "runs": options.runs, "load_at_start": round(load, 1)}
    print(keep("skewed-keys", {"benchmark": "skewed_keys", **settings, "lines": lines}))


if __name__ == "__main__":
    main()
