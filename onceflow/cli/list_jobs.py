"""`onceflow list`: the jobs that this user runs on this machine."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from onceflow.cli.operate import ask_running
from onceflow.runtime.control.messages import AskStatus
from onceflow.runtime.environment.running_jobs import find_all, find_starting

STARTING = "starting"
PIPE_WIDTH = 240  # nobody's terminal: nothing is to be cut

app = typer.Typer(help="The jobs that you run on this machine.", add_completion=False)


@app.command()
def list_jobs(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """A driver that was killed is not listed: run its command again."""
    found = [(job, ask_running(job, AskStatus())) for job in find_all()]
    running = [(job, status) for job, status in found if status is not None]
    answering = {job.pid for job, _ in running}
    starting = [job for job in find_starting() if job.pid not in answering]
    if as_json:
        rows = [
            {"job": s["job"], "pid": j.pid, "phase": s["phase"], "checkpoint_dir": j.checkpoint_dir}
            for j, s in running
        ]
        rows += [
            {"job": j.job, "pid": j.pid, "phase": STARTING, "checkpoint_dir": j.checkpoint_dir}
            for j in starting
        ]
        typer.echo(json.dumps(rows))
        return
    if not running and not starting:
        typer.echo("no job runs")
        return
    table = Table("job", "pid", "phase", "records in", "records out", "last checkpoint", "checkpoint folder")
    for job, status in running:
        table.add_row(
            status["job"],
            str(job.pid),
            status["phase"],
            f"{status['records_in']:,}",
            f"{status['records_out']:,}",
            str(status["last_checkpoint_id"]),
            job.checkpoint_dir,
        )
    for early in starting:
        table.add_row(early.job, str(early.pid), STARTING, "-", "-", "-", early.checkpoint_dir)
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)
