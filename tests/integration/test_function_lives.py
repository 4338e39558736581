"""Function objects on Spark: open, parameters from the command line, close at the end; no secret anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
ONCEFLOW = [sys.executable, "-c", "from onceflow.cli.app import main; main()"]

PROGRAM = """
import json
import os
import pathlib
import time
from dataclasses import dataclass

from onceflow import FunctionContext, Job, secret


@dataclass(frozen=True)
class Item:
    n: int


class Lookup:
    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def open(self, ctx: FunctionContext) -> None:
        self.ctx = ctx
        self.notes = pathlib.Path(ctx.params["notes"])
        self.lock = __import__("threading").Lock()  # what can't travel is made here
        self.note("open", ctx.params["retries"], ctx.params["token"].reveal() == "hunter2")

    def __call__(self, item: Item) -> Item:
        if item.n == 3:
            self.ctx.log.warning("at %d with %s", item.n, self.ctx.params["token"].reveal())
            if self.fails and self.ctx.attempt == 1:
                raise ValueError(f"no answer for {self.ctx.params['token'].reveal()}")
        return item

    def close(self) -> None:
        time.sleep(2.5)  # longer than Spark leaves a task that it ends
        self.note("close")

    def note(self, *what: object) -> None:
        with self.notes.open("a") as file:
            file.write(json.dumps([*what, self.ctx.subtask, self.ctx.attempt, os.getpid()]) + chr(10))


def build(argv: list[str]) -> Job:
    job = Job("lives", params={"notes": str, "retries": 1, "token": secret(env="LIVES_TOKEN")})
    items = job.from_elements(*(Item(n) for n in range(10))).rebalance()
    items.map(Lookup("fails" in argv), uid="lookup").print(label="out")
    return job
"""


@pytest.mark.parametrize("fails", [False, True])
def test_on_spark(tmp_path: Path, fails: bool) -> None:
    program, notes = tmp_path / "lives.py", tmp_path / "notes.jsonl"
    program.write_text(PROGRAM)
    options = ["--checkpoint-dir", tmp_path / "ckpt", "--json", "--restart", "fixed:1 ms", "--debug"]
    params = ["--param", f"notes={notes}", "--param", "retries=7"]
    run = subprocess.run(
        [*ONCEFLOW, "run", program, *options, *params, "--", *(["fails"] if fails else [])],
        env={**os.environ, "LIVES_TOKEN": "hunter2"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    noted = [json.loads(line) for line in notes.read_text().splitlines()]
    attempts = (1, 2) if fails else (1,)
    opened = [(*each[1:3], *each[-3:-1]) for each in noted if each[0] == "open"]
    assert sorted(opened) == sorted((7, True, subtask, n) for n in attempts for subtask in (0, 1))
    closed = sorted(tuple(each[-3:-1]) for each in noted if each[0] == "close")
    assert closed == sorted((subtask, n) for n in attempts for subtask in (0, 1)), "closed at every end"
    assert "lookup" in run.stderr, "what a function logs comes to the terminal"
    assert "at 3 with ***" in run.stderr
    written = [path.read_bytes() for path in (tmp_path / "ckpt").rglob("*") if path.is_file()]
    assert "hunter2" not in run.stdout + run.stderr
    assert not any(b"hunter2" in content for content in written)
    names = [json.loads(line)["event"] for line in run.stdout.splitlines() if line.startswith("{")]
    assert ("attempt_failed" in names) == fails
    assert names[-1] == "job_finished"
