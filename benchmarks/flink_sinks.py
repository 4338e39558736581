"""Rows into files and into a table of PostgreSQL, beside Flink's FileSink and its JDBC sink.

    python -m benchmarks.flink_sinks --kinds jsonl avro append upsert --runs 3

Both make the same rows by the same formula in the process that writes: two integers, a key, a text. One
subtask, a checkpoint each second. Each job runs with a few rows and with many, onceflow with six times as
many since it is done sooner; the figure is the CPU of the difference, so that the start, and most of what a
JVM needs to warm up, is in none, and the CPU of making the rows is in all. What is there is judged after each
run, by DuckDB, fastavro or the server: a figure counts only if each row is there once.

Files end with each checkpoint and are not packed; both sinks are exactly once. Flink's JSON lines are made
by hand, without a library; its Avro files by `AvroWriters.forReflectRecord`. Its JDBC sink is at least once,
with `reWriteBatchedInserts` and batches of 10,000; ours appends exactly once, with a ledger. The server's own
CPU is in no figure: rows a second by the clock are beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.cpu_of_jobs import Failed, ended
from benchmarks.environments import Environment, class_path, compile_java, install
from benchmarks.jobs.written_rows import KEYS, PRICE, PRICES
from benchmarks.kept_results import keep
from benchmarks.peers.flink import ENVIRONMENT, OPTIONS
from benchmarks.peers.peer import FOLDER
from onceflow.runtime.environment.java import find_java
from tests.postgres_server import PostgresServer

CONNECTORS = Environment(
    "flink-connectors",
    jars_alone=(
        "org.apache.flink:flink-avro:2.2.0",
        "org.apache.avro:avro:1.11.4",
        "com.fasterxml.jackson.core:jackson-databind:2.20.0",
        "com.fasterxml.jackson.core:jackson-annotations:2.20",
        "org.apache.flink:flink-connector-jdbc-core:4.0.0-2.0",
        "org.postgresql:postgresql:42.7.8",
    ),
)
FILES, TABLES = ("jsonl", "avro"), ("append", "upsert")
PROGRAM = Path(__file__).parent / "jobs" / "written_rows.py"
OURS, FLINK = "onceflow", "flink"
FEW = 500_000
OURS_MORE = 6
"""How many times as many rows onceflow gets."""
TABLES_FEWER = 2
"""How many times fewer rows go to a table than into files."""
Rates = tuple[float, float]
"""Thousands of rows per CPU-second, and per second."""
Command = Callable[[str, int, str, Path], list[str]]
"""From kind, rows, place and a folder for checkpoints to a job's command."""
Found = tuple[int, int, int]
"""How many rows are there, with how many different numbers, and the sum of their cents."""


def ours(kind: str, rows: int, place: str, folder: Path) -> list[str]:
    command = [str(Path(sys.executable).with_name("onceflow")), "run", str(PROGRAM)]
    command += ["--master", "threads[1]", "--parallelism", "1", "--checkpoint-interval", "1 s"]
    return [*command, "--checkpoint-dir", str(folder), "--", kind, str(rows), place]


def flink() -> Command:
    installed, connectors = install(ENVIRONMENT, print), install(CONNECTORS, print)
    jars = [*installed.package_jars("pyflink/lib/*.jar"), *installed.jars(), *connectors.jars()]
    name = "FlinkSinks"
    classes = compile_java([FOLDER / "java" / f"{name}.java"], jars, name)
    start = [str(find_java().executable), *OPTIONS, "-cp", class_path([classes, *jars]), name]
    return lambda kind, rows, place, folder: [*start, kind, str(rows), place, folder.as_uri()]


class Place:
    """Where one job writes, and what is there then."""

    def __init__(self, kind: str, folder: Path, server: PostgresServer | None) -> None:
        self._kind = kind
        self._folder = folder
        self._server = server
        if server is not None:
            key = "PRIMARY KEY" if kind == "upsert" else ""
            columns = f'n bigint, id bigint {key}, "user" text, cents bigint'
            server.execute("DROP TABLE IF EXISTS rows", f"CREATE TABLE rows ({columns})")

    def url(self, engine: str) -> str:
        if self._server is None:
            return str(self._folder) if engine == OURS else self._folder.as_uri()
        if engine == OURS:
            return self._server.url
        address = f"jdbc:postgresql://127.0.0.1:{self._server.port}/postgres"
        return f"{address}?reWriteBatchedInserts=true"

    def count(self) -> int:
        """How many rows are there."""
        if self._server is not None:
            return int(self._server.rows("SELECT count(*) FROM rows")[0])
        if self._kind == "jsonl":
            return int(duckdb.sql(f"select count(*) from {self._lines}").fetchall()[0][0])
        count = 0
        for path in self._folder.glob("*.avro"):
            with path.open("rb") as file:
                count += sum(block.num_records for block in fastavro.block_reader(file))
        return count

    def found(self) -> Found:
        asked = "count(*), count(distinct n), sum(cents)::bigint"
        if self._server is not None:
            return tuple(self._server.rows(f"SELECT {asked} FROM rows")[0])
        if self._kind == "jsonl":
            return duckdb.sql(f"select {asked} from {self._lines}").fetchall()[0]
        rows: list[Any] = []
        for path in self._folder.glob("*.avro"):
            with path.open("rb") as file:
                rows += fastavro.reader(file)
        return len(rows), len({row["n"] for row in rows}), sum(row["cents"] for row in rows)

    @property
    def _lines(self) -> str:
        return f"read_json('{self._folder}/*.jsonl', columns={{n: 'bigint', cents: 'bigint'}})"


def expected_of(kind: str, rows: int) -> Found:
    """What has to be there of so many rows."""
    first = max(rows - KEYS, 0) if kind == "upsert" else 0
    cents = np.arange(first, rows, dtype=np.int64) * PRICE % PRICES
    return len(cents), len(cents), int(cents.sum())


def measured(command: Command, engine: str, kind: str, rows: int, server: PostgresServer | None) -> Rates:
    """Thousands of rows per CPU-second and per second. Raises Failed."""
    took = []
    for count in (FEW, rows):
        with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name:
            place = Place(kind, Path(name) / "rows", server)
            took.append(ended(command(kind, count, place.url(engine), Path(name) / "checkpoints")))
            expected = expected_of(kind, count)
            if place.count() != expected[0] or (count == FEW and place.found() != expected):
                raise Failed(f"{place.found()} are (rows, different, cents), and should be {expected}")
    few, all_ = took
    more = (rows - FEW) / 1000
    return round(more / (all_.cpu_s - few.cpu_s), 1), round(more / (all_.wall_s - few.wall_s), 1)


def line_of(
    kind: str, engines: Mapping[str, Command], server: PostgresServer | None, options: argparse.Namespace
) -> dict[str, Any]:
    """The rates of each engine, in turns, or why it has none."""
    rates: dict[str, list[Rates]] = {name: [] for name in engines}
    failures: dict[str, str] = {}
    rows = options.rows if kind in FILES else options.rows // TABLES_FEWER
    for number in range(options.runs):
        for name in sorted(engines, reverse=number % 2 == 1):
            try:
                many = rows * (OURS_MORE if name == OURS else 1)
                rates[name].append(measured(engines[name], name, kind, many, server))
            except Failed as error:
                failures[name] = str(error)
    medians = {name: round(statistics.median(r for r, _ in of), 1) for name, of in rates.items() if of}
    return {
        "kind": kind,
        "rows": rows,
        "k_rows_per_cpu_s": {name: [rate for rate, _ in of] for name, of in rates.items()},
        "k_rows_per_s": {name: [rate for _, rate in of] for name, of in rates.items()},
        "median": medians,
        "ratio": round(medians[OURS] / medians[FLINK], 2) if len(medians) == len(engines) == 2 else None,
        "failures": failures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=(*FILES, *TABLES), default=(*FILES, *TABLES))
    parser.add_argument("--rows", type=int, default=6_000_000, help="for Flink; tables get half of them")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without Flink")
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    engines: dict[str, Command] = {OURS: ours} | ({} if options.alone else {FLINK: flink()})
    lines = []
    with ExitStack() as stack:
        tables = set(options.kinds) & set(TABLES)
        server = stack.enter_context(PostgresServer()) if tables else None
        for kind in options.kinds:
            lines.append(line_of(kind, engines, server if kind in TABLES else None, options))
            print(json.dumps(lines[-1]), flush=True)
    table = Table("kind", "k rows/CPU-s", "Flink's", "ratio")
    for line in lines:
        cells = [str(line["median"].get(name, "-")) for name in (OURS, FLINK)]
        table.add_row(line["kind"], *cells, str(line["ratio"] or "-"))
    Console().print(table)
    if not options.alone:
        settings = {"rows": options.rows, "runs": options.runs, "load_at_start": load}
        print(keep("flink-sinks", {"benchmark": "flink_sinks", **settings, "lines": lines}))


if __name__ == "__main__":
    main()
