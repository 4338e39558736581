"""`onceflow stop DIR`: a last checkpoint, then a clean end."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskStop

app = typer.Typer(help="Stop a running job cleanly after a last checkpoint.", add_completion=False)


@app.command()
def stop(
    checkpoint_dir: Annotated[str, typer.Argument(help="The job's checkpoint folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Everything up to the last checkpoint is committed; run the job again and it goes on from there."""
    answer = ask(checkpoint_dir, AskStop())
    if as_json:
        typer.echo(json.dumps(answer))
        return
    typer.echo(f"{answer['job']} stops after a last checkpoint")
