"""`onceflow rescale JOB N`: another number of slots, while the job runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from onceflow.cli.job_folder import JobFolder
from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskRescale, AskStatus
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OnceflowError, UsageError

app = typer.Typer(help="Give a running job another number of slots.", add_completion=False)

LOOK_AGAIN_S = 0.1


@app.command()
def rescale(
    checkpoint_dir: JobFolder,
    parallelism: Annotated[int, typer.Argument(help="How many slots it is to have.")],
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return when records flow in so many slots.")
    ] = True,
    timeout: Annotated[str, typer.Option(help="How long to wait for that.")] = "5 min",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """A checkpoint comes at once; then its state and the splits go to so many slots, and the job goes on from
    it. Nothing is computed twice. It holds until the job ends: the same command begins with its own
    --parallelism.

    Exit code 0: it runs with so many slots, or with --no-wait: it was asked to; 1: not in time.
    """
    deadline_s = time.monotonic() + duration_ms(timeout, "timeout") / 1000
    answer = ask(checkpoint_dir, AskRescale(slots=parallelism))
    if problem := answer.get("refused"):
        raise UsageError(f"{problem}; {answer['job']} goes on as it is: choose another number of slots")
    while wait and not _has_arrived(answer, parallelism):
        if time.monotonic() >= deadline_s:
            raise OnceflowError(
                f"{answer['job']} does not run with {parallelism} slots within {timeout}: it goes on to try; "
                f"look at it with `onceflow status {checkpoint_dir}`, or wait for longer with --timeout"
            )
        time.sleep(LOOK_AGAIN_S)
        answer = ask(checkpoint_dir, AskStatus())
    if as_json:
        typer.echo(json.dumps(answer))
    elif wait:
        typer.echo(f"{answer['job']} runs with {parallelism} slots")
    else:
        typer.echo(f"{answer['job']} goes on with {parallelism} slots after a checkpoint")


def _has_arrived(status: Mapping[str, Any], parallelism: int) -> bool:
    """Whether all slots are there and run."""
    is_there = len(status["slots"]) == parallelism == status["parallelism"]
    return bool(is_there and status["phase"] == "running")
