"""A program without a broker, run by spark-submit: what its slots make comes to the driver's process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

import onceflow
from onceflow import BatchContext, Job, col, count

NOTED = sys.argv[1]

@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int

def purchases() -> Iterator[Purchase]:
    for n in range(1_000):
        yield Purchase(f"u{n % 3}", n)

def note(batch: pl.DataFrame, context: BatchContext) -> None:
    with open(NOTED, "a") as file:
        file.write(json.dumps([context.batch_id, batch["amount"].sum()]) + "\\\\n")

if __name__ == "__main__":
    job = Job("first")
    stream = job.from_records(purchases)
    stream.filter(col("amount") < 2).print(label="small")
    rows = stream.rebalance().collect()
    stream.foreach_batch(note)
    made = job.data_generator(Purchase, count=500, fields={"amount": "number"}).collect()
    result = onceflow.run(job)
    print(json.dumps([result.outcome.value, sorted(rows, key=lambda r: r.amount) == list(purchases())]))
    print(json.dumps(sorted(row.amount for row in made) == list(range(500))))
"""


def test_under_spark_submit(tmp_path: Path) -> None:
    program, noted = tmp_path / "first.py", tmp_path / "noted.jsonl"
    program.write_text(PROGRAM.replace("\\\\n", "\\n"))
    binaries = Path(sys.executable).parent
    run = subprocess.run(
        [binaries / "spark-submit", "--master", "local[2]", program, noted],
        env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3_000:]
    lines = run.stdout.splitlines()
    assert sorted(line for line in lines if line.startswith("small> ")) == [
        'small> {"user": "u0", "amount": 0}',
        'small> {"user": "u1", "amount": 1}',
    ]
    assert lines[-2:] == ['["finished", true]', "true"]
    batches = dict(json.loads(line) for line in noted.read_text().splitlines())
    assert sum(batches.values()) == sum(range(1_000))
    assert "ERROR" not in run.stderr, "a stage that ends is no error"
