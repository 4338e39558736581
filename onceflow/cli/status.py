"""`onceflow status JOB`: what a running job does now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from onceflow.cli.job_folder import JobFolder
from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskStatus

app = typer.Typer(help="What a running job does now.", add_completion=False)


@app.command()
def status(
    checkpoint_dir: JobFolder,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Found through its checkpoint folder; only the job's owner may ask."""
    answer = ask(checkpoint_dir, AskStatus())
    if as_json:
        typer.echo(json.dumps(answer))
        return
    table = Table("", "", show_header=False, box=None)
    for name, value in answer.items():
        if name == "slots":
            value = ", ".join(map(_slot, value))
        elif name == "task_counters" or (name == "metrics" and not value):
            continue
        elif name == "last_checkpoint_state":
            name, value = "state", "; ".join(f"{uid}: {_size(size)}" for uid, size in value.items()) or None
        elif name == "busy_ratio":
            value = f"{value:.0%}"
        elif name == "rss_bytes":
            value = f"{value / 2**20:,.0f} MiB"
        elif isinstance(value, float):
            value = f"{value:,.0f}"
        elif isinstance(value, list):
            value = "; ".join(map(str, value)) or None
        table.add_row(name.replace("_", " "), "-" if value is None else str(value))
    Console().print(table)


def _size(size: Mapping[str, int]) -> str:
    return f"{size['rows']:,} rows in {size['bytes']:,} B"


def _slot(slot: Mapping[str, Any]) -> str:
    memory = f"{slot['rss_bytes'] / 2**20:,.0f} MiB"
    return f"{slot['slot']}: pid {slot['pid']} on {slot['host']}, {slot['busy_ratio']:.0%} busy, {memory}"
