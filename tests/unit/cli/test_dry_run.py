"""`onceflow run --dry-sink`, as a command: what sinks would get is in files, and they get nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from onceflow.cli.compare import app

PROGRAM = """
import json, sys
from dataclasses import dataclass
from onceflow import Job, WatermarkStrategy, col, sum_, tumbling
from onceflow.sinks.kafka import KafkaSink
from onceflow.sinks.postgres import PostgresSink


@dataclass(frozen=True)
class Order:
    user: str
    cents: int
    ts: int


@dataclass(frozen=True)
class Name:
    user: str
    name: str
    ts: int


def build(argv):
    folder, factor = argv[0], int(argv[1])
    job = Job("totals")
    times = WatermarkStrategy.monotonous("ts")
    orders = job.from_files(f"{folder}/orders/*.jsonl", Order, watermarks=times, uid="orders")
    names = job.from_files(f"{folder}/names/*.jsonl", Name, watermarks=times, uid="names")
    totals = orders.with_columns(cents=col("cents") * factor).key_by("user").window(tumbling("10 s"))
    # Nobody listens there.
    totals.aggregate(total=sum_("cents"), uid="per-user").sink_to(
        KafkaSink("localhost:1", "totals"), uid="to-kafka"
    )
    named = orders.key_by("user").join(names.key_by("user"), how="left", uid="named")
    named.select("user", "cents", "name").sink_to(
        PostgresSink("postgresql://localhost:1/none", "named", key="user"), uid="named-orders"
    )
    return job
"""


def onceflow(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from onceflow.cli.app import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)


def run(folder: Path, factor: int, checkpoints: str, *options: str) -> subprocess.CompletedProcess[str]:
    chosen = ["--master", "threads[1]", "--checkpoint-dir", checkpoints, *options]
    return onceflow("run", "job.py:build", *chosen, "--", str(folder), str(factor), cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(PROGRAM)
    for name, rows in {
        "orders": ['{"user":"ann","cents":5,"ts":1000}', '{"user":"bob","cents":7,"ts":2000}'],
        "names": ['{"user":"ann","name":"Ann","ts":1500}'],
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jsonl").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_what_the_sinks_would_get_is_in_files_and_two_programs_can_be_compared(folder: Path) -> None:
    for factor in (1, 2):
        done = run(folder, factor, f"ck-{factor}", "--dry-sink", f"out-{factor}")
        assert done.returncode == 0, done.stderr
    same, said = compare(folder, "out-1", "out-1")
    assert (same, [sink["differ"] for sink in said["sinks"]]) == (0, [False, False])
    different, said = compare(folder, "out-1", "out-2")
    sinks = {sink["uid"]: sink for sink in said["sinks"]}
    assert different == 1
    assert {uid: sink["key"] for uid, sink in sinks.items()} == {"to-kafka": [], "named-orders": ["user"]}
    counts = ("same", "only_in_a", "only_in_b", "changed")
    assert [sinks["to-kafka"][count] for count in counts] == [0, 2, 2, 0]
    assert [sinks["named-orders"][count] for count in counts] == [2, 0, 0, 0]
    _, said = compare(folder, "out-1", "out-2", "--key", "to-kafka=user,window_start", "--ignore", "cents")
    [changed] = [sink for sink in said["sinks"] if sink["differ"]]
    assert [changed[count] for count in counts] == [0, 0, 0, 2]
    totals = {n: pl.read_parquet(folder / f"out-{n}" / "to-kafka" / "*.parquet") for n in (1, 2)}
    changed = totals[1].join(totals[2], on=["user", "window_start"], suffix="_new").sort("user")
    assert changed.select("user", "total", "total_new").rows() == [("ann", 5, 10), ("bob", 7, 14)]
    named = pl.read_parquet(folder / "out-1" / "named-orders" / "*.parquet")
    state: dict[tuple[str, str | None], int] = {}
    for user, _, name, kind in named.rows():
        state[user, name] = state.get((user, name), 0) + (-1 if kind in (1, 3) else 1)
    assert {key for key, count in state.items() if count} == {("ann", "Ann"), ("bob", None)}


def compare(folder: Path, *arguments: str) -> tuple[int, Any]:
    done = CliRunner().invoke(
        app, [str(folder / each) if "out" in each else each for each in (*arguments, "--json")]
    )
    return done.exit_code, json.loads(done.output)


def test_what_can_not_be_compared_is_said(tmp_path: Path) -> None:
    runner = CliRunner()
    nothing = runner.invoke(app, [str(tmp_path), str(tmp_path / "none")])
    assert "has no rows of a dry run" in str(nothing.exception)
    (tmp_path / "sink").mkdir()
    pl.DataFrame({"n": [1]}).write_parquet(tmp_path / "sink" / "1.parquet")
    for key, said in (
        ("sink", "write UID=COLUMN"),
        ("zink=n", "did you mean 'sink'"),
        ("sink=m", "no column 'm'"),
    ):
        refused = runner.invoke(app, [str(tmp_path), str(tmp_path), "--key", key])
        assert said in str(refused.exception)
    shown = runner.invoke(app, [str(tmp_path), str(tmp_path)])
    assert (shown.exit_code, "only in A" in shown.output) == (0, True)


def test_a_folder_is_of_dry_runs_or_of_real_ones(folder: Path) -> None:
    """What a dry run has passed over would be missing in the real output for ever."""
    assert run(folder, 1, "ck", "--dry-sink", "out").returncode == 0
    real = run(folder, 1, "ck")
    assert real.returncode == 2
    assert "the checkpoint folder belongs to job 'totals-dry-run', not 'totals'" in real.stderr


def test_an_option_of_a_sink_is_judged_as_in_the_real_run(folder: Path) -> None:
    (folder / "job.py").write_text(PROGRAM.replace('key="user"', 'key="nobody"'))
    refused = run(folder, 1, "ck", "--dry-sink", "out")
    assert refused.returncode == 2
    assert "nobody" in refused.stderr
    assert not (folder / "out").exists()
