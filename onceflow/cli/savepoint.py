"""`onceflow savepoint DIR TARGET`: a checkpoint as a folder of its own."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from onceflow.runtime.checkpoint.savepoint import Savepoint, take_savepoint
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import SystemClock

app = typer.Typer(help="Take a savepoint: a checkpoint as a folder of its own.", add_completion=False)


@app.command()
def savepoint(
    checkpoint_dir: Annotated[str, typer.Argument(help="The job's checkpoint folder or URL.")],
    target: Annotated[str, typer.Argument(help="A new folder or URL for the savepoint.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Copy the newest checkpoint whose output is known to be committed. The job may run meanwhile, or not.

    `onceflow run --from TARGET` starts a job from it, with a checkpoint folder of its own.
    """
    taken = take(checkpoint_dir, target)
    if as_json:
        m = taken.manifest
        size = {"checkpoint_id": m.checkpoint_id, "total_bytes": m.total_bytes}
        typer.echo(json.dumps({"savepoint_id": taken.savepoint_id, "path": target, **size}))
    else:
        typer.echo(told(taken, target))


def take(checkpoint_dir: str, target: str, committed_id: int | None = None) -> Savepoint:
    """See `take_savepoint`."""
    return take_savepoint(open_store(checkpoint_dir), open_store(target), SystemClock(), committed_id)


def told(taken: Savepoint, target: str) -> str:
    """What was taken, in one sentence."""
    manifest = taken.manifest
    return (
        f"savepoint {taken.savepoint_id} in {target}: checkpoint {manifest.checkpoint_id} of job "
        f"{manifest.job!r}, {manifest.total_bytes:,} B of state; start from it with --from {target}"
    )
