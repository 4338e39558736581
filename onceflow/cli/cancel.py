"""`onceflow cancel JOB`: the end at once, without a checkpoint."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from onceflow.cli.job_folder import JobFolder
from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskCancel

app = typer.Typer(help="End a running job at once, without a last checkpoint.", add_completion=False)


@app.command()
def cancel(
    checkpoint_dir: JobFolder,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What came after the latest completed checkpoint is read again by the next run."""
    answer = ask(checkpoint_dir, AskCancel())
    if as_json:
        typer.echo(json.dumps(answer))
        return
    typer.echo(
        f"{answer['job']} ends now; it goes on from checkpoint {answer['last_checkpoint_id']} when run again"
    )
