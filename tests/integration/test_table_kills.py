"""A job that writes tables, of Delta or of Iceberg, is killed inside its commits, frozen there, and told
nothing: all is there once."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.integration.jobs.table_rows import USERS, catalog_in
from tests.read_tables import read_delta, read_iceberg

PROGRAM = Path(__file__).parent / "jobs" / "table_rows.py"
TROUBLES = ("exit before", "exit after", "lost answer", "stop before")
TABLES = ("appended", "counted")


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def read(kind: str, folder: Path, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """What DuckDB finds in a table."""
    if kind == "delta":
        rows = read_delta(f"{folder}/{table}", columns)
    else:
        there = load_catalog(None, **catalog_in(str(folder))).load_table(f"t.{table}")
        rows = read_iceberg(there.metadata_location, columns)
    return [tuple(row.values()) for row in rows]


def check(kind: str, folder: Path, records: int) -> None:
    """Each record once, and the final count of each user."""
    columns = "count(*) c, count(DISTINCT number) d, min(number) l, max(number) h"
    assert read(kind, folder, "appended", columns) == [(records, records, 0, records - 1)]
    counted = read(kind, folder, "counted", '"user", times')
    assert sorted(counted) == sorted((f"u{n}", len(range(n, records, USERS))) for n in range(USERS))


def run_with_troubles(
    kind: str,
    troubles: list[tuple[str, str]],
    records: int,
    rate: int,
    start_job: Any,
    engine: Any,
    folder: Path,
) -> None:
    """One after the other, each in a driver of its own; the last one runs to the end."""
    tables = folder / "tables"
    stopped = tables / "stopped"
    chance = random.Random(len(troubles))

    def start(*trouble: str, rate: int = rate) -> Any:
        arguments = (kind, str(tables), str(records), str(rate), *trouble)
        return start_job(folder / "ck", *arguments, program=PROGRAM, interval="100 ms")

    for what, table in troubles:
        nth = chance.randint(1, 3)
        job = start(what, str(nth), table)
        if what == "lost answer":
            for _ in range(nth + 1):
                job.wait_event("checkpoint_completed", after=job.mark)
            job.kill_group()
            job.wait()
        elif what == "stop before":
            engine.wait_for(stopped.exists, job)
            newer = start()
            newer.wait_event("checkpoint_completed")
            newer.wait_event("checkpoint_completed", after=newer.mark)
            stopped.unlink()
            os.kill(job.pid, signal.SIGCONT)
            assert job.wait() != 0, "the one that was frozen has to go"
            newer.kill_group()
            newer.wait()
        else:
            assert job.wait() == 137
    job = start(rate=1_000_000)
    assert job.wait(180) == 0, job.story()
    check(kind, tables, records)


def test_each_row_is_there_once_whatever_happens_inside_a_commit(
    kind: str, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    troubles = list(zip(TROUBLES, ("counted", "appended", "appended", "counted"), strict=True))
    run_with_troubles(kind, troubles, 60_000, 2_000, start_job, engine, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_twenty_four_troubles(kind: str, start_job: Any, engine: Any, tmp_path: Path) -> None:
    every = [(what, table) for what in TROUBLES for table in TABLES]
    run_with_troubles(kind, every * 3, 400_000, 2_000, start_job, engine, tmp_path)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_twenty_four_kills_of_slots_and_whole_jobs(kind: str, start_job: Any, tmp_path: Path) -> None:
    """On Spark, where slots are processes: each kill when an entry of a log has just appeared."""
    tables, records = tmp_path / "tables", 300_000
    chance = random.Random(1)

    def start() -> Any:
        options = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms"]
        arguments = (kind, str(tables), str(records), "4000")
        return start_job(tmp_path / "ck", *arguments, program=PROGRAM, master="local[2]", options=options)

    job = start()
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    for n in range(24):
        mark = job.mark
        job.wait_event("checkpoint_completed", after=mark)
        mark = job.mark
        if n % 2:
            os.kill(chance.choice(job.slots()), signal.SIGKILL)
            job.wait_event("restarted", after=mark)
            job.wait_event("checkpoint_completed", after=mark)
        else:
            job.kill_group()
            job.wait()
            job = start()
            job.wait_event("slots_started")
    assert job.wait(300) == 0, job.story()
    check(kind, tables, records)
