"""`onceflow savepoints FOLDER`: what is in a savepoint."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from onceflow.cli.checkpoints import PIPE_WIDTH, described_state
from onceflow.runtime.checkpoint.reading import StoredCheckpoint
from onceflow.runtime.checkpoint.savepoint import read_savepoint
from onceflow.runtime.checkpoint.store_url import open_store

app = typer.Typer(help="Show what is in a savepoint.", add_completion=False)


@app.command()
def savepoints(
    folder: Annotated[str, typer.Argument(help="The savepoint's folder or URL.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Who took it of what and when, its operators' state, and how far each source was read."""
    store = open_store(folder)
    taken = read_savepoint(store)
    manifest = taken.manifest
    tables = StoredCheckpoint(store, manifest).tables
    positions = {
        uid: {progress.split.split_id: dict(progress.split.position) for progress in splits}
        for uid, splits in manifest.splits.items()
    }
    if as_json:
        known = {name: getattr(taken, name) for name in taken.__struct_fields__ if name != "manifest"}
        states = [msgspec.to_builtins(table) for table in tables]
        typer.echo(json.dumps({**known, "job": manifest.job, "states": states, "positions": positions}))
        return
    at = f"{datetime.fromtimestamp(taken.taken_ms / 1000):%Y-%m-%d %H:%M:%S}"
    typer.echo(f"savepoint {taken.savepoint_id} of job {manifest.job!r}, taken at {at} by {taken.onceflow}")
    typer.echo(f"of checkpoint {manifest.checkpoint_id} in {taken.taken_of}; {manifest.parallelism} slots")
    if taken.parent:
        typer.echo(f"that folder was started from savepoint {taken.parent}")
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(described_state(tables, "state"))
    shown = Table("uid", "split", "position", title="sources")
    for uid, splits in positions.items():
        for split, position in splits.items():
            shown.add_row(uid, split, json.dumps(position))
    console.print(shown)
