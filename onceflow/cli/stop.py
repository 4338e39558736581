"""`onceflow stop JOB`: a last checkpoint, then a clean end."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from onceflow.cli.job_folder import JobFolder
from onceflow.cli.operate import ask, stop_and_wait
from onceflow.cli.savepoint import described, take, told
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.control.messages import AskStop
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OnceflowError, OptionError

app = typer.Typer(help="Stop a running job cleanly after a last checkpoint.", add_completion=False)

_GOOD = {Outcome.STOPPED.value, Outcome.FINISHED.value}


@app.command()
def stop(
    checkpoint_dir: JobFolder,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return when the job has ended, and say how.")
    ] = True,
    timeout: Annotated[str, typer.Option(help="How long to wait for the end.")] = "2 min",
    savepoint: Annotated[
        bool, typer.Option("--savepoint", help="Take a savepoint of the last checkpoint.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(help="A new folder for --savepoint. Default: pinned in the job's own."),
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Before, end all sources: windows and timers fire.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Everything up to the last checkpoint is committed; run the job again and it goes on from there.
    With --drain it has finished, and only a savepoint goes on.

    Exit code 0: it has ended well, or with --no-wait: it was asked to; 1: it failed instead, or has not ended
    in time.
    """
    timeout_s = duration_ms(timeout, "timeout") / 1000
    if target is not None and not savepoint:
        raise OptionError(
            "--target is where --savepoint copies the last checkpoint to: give both, or neither"
        )
    if savepoint and not wait:
        raise OptionError(
            "--savepoint takes the last checkpoint, so it waits for the end: leave out --no-wait"
        )
    if not wait:
        answer = ask(checkpoint_dir, AskStop(drains=drain))
        typer.echo(json.dumps(answer) if as_json else f"{answer['job']} stops after a last checkpoint")
        return
    answer, ended = stop_and_wait(checkpoint_dir, timeout_s, drain)
    good = {Outcome.FINISHED.value} if drain else _GOOD
    if not as_json:
        last = "none" if ended.checkpoint_id is None else ended.checkpoint_id
        typer.echo(f"{answer['job']} {ended.outcome}: {ended.reason}; last checkpoint {last}")
    taken = None
    if savepoint and ended.outcome in good:
        taken = take(checkpoint_dir, target, ended.checkpoint_id)
    if as_json:
        end = {"outcome": ended.outcome, "reason": ended.reason, "last_checkpoint_id": ended.checkpoint_id}
        kept = {"savepoint": described(*taken)} if taken is not None else {}
        typer.echo(json.dumps({**answer, "phase": "over", **end, **kept}))
    elif taken is not None:
        typer.echo(told(*taken))
    if drain and ended.outcome == Outcome.STOPPED.value:
        raise OnceflowError(
            "it has stopped without being drained: no attempt ran, or another stop came first; run the job "
            "again, and drain it then"
        )
    if ended.outcome not in good:
        raise typer.Exit(1)
