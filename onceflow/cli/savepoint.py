"""`onceflow savepoint JOB [TARGET]`: a checkpoint that is the user's."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated

import typer

from onceflow.cli.job_folder import JobFolder
from onceflow.runtime.checkpoint.savepoints.pins import pinned_folder
from onceflow.runtime.checkpoint.savepoints.savepoint import Savepoint
from onceflow.runtime.checkpoint.savepoints.taking import copy_savepoint, pin_savepoint
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import SystemClock

app = typer.Typer(help="Take a savepoint: a checkpoint that is yours.", add_completion=False)


@app.command()
def savepoint(
    checkpoint_dir: JobFolder,
    target: Annotated[
        str | None,
        typer.Argument(help="A new folder or URL for a copy. Default: pinned in the job's own folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Keep the newest checkpoint whose output is known to be committed. The job may run meanwhile, or not.

    Without TARGET no state is copied: the savepoint is in `savepoints/` of the checkpoint folder, and its
    files stay until `onceflow savepoints delete`. `onceflow run --from` starts a job from either.
    """
    taken, place = take(checkpoint_dir, target)
    if as_json:
        typer.echo(json.dumps(described(taken, place)))
    else:
        typer.echo(told(taken, place))


def take(checkpoint_dir: str, target: str | None, committed_id: int | None = None) -> tuple[Savepoint, str]:
    """A savepoint, copied to `target` or pinned, and its path. See `pin_savepoint` and `copy_savepoint`.
    Files that are read from their copies are told on stderr."""
    store, clock, on_healed = open_store(checkpoint_dir), SystemClock(), partial(typer.echo, err=True)
    if target is not None:
        return copy_savepoint(store, open_store(target), clock, committed_id, on_healed), target
    taken = pin_savepoint(store, clock, committed_id, on_healed)
    return taken, f"{checkpoint_dir.rstrip('/')}/{pinned_folder(taken.savepoint_id)}"


def described(taken: Savepoint, place: str) -> dict[str, object]:
    """What was taken, for scripts."""
    m = taken.manifest
    size = {"checkpoint_id": m.checkpoint_id, "total_bytes": m.total_bytes}
    return {"savepoint_id": taken.savepoint_id, "path": place, "is_pinned": taken.is_pinned, **size}


def told(taken: Savepoint, place: str) -> str:
    """What was taken, in one sentence."""
    manifest = taken.manifest
    return (
        f"savepoint {taken.savepoint_id} in {place}: checkpoint {manifest.checkpoint_id} of job "
        f"{manifest.job!r}, {manifest.total_bytes:,} B of state; start from it with --from {place}"
    )
