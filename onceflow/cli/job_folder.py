"""Which job a command means: by its checkpoint folder, or by its name while it runs on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from onceflow.cli.operate import ask_running
from onceflow.runtime.control.messages import AskStatus
from onceflow.runtime.environment.running_jobs import find_all, find_starting
from onceflow.runtime.errors import UsageError


def folder_of(job: str) -> str:
    """The checkpoint folder that is meant: of a running job by its name, if there is no folder of that name.
    Raises UsageError if several are called so."""
    if "/" in job or "://" in job or Path(job).exists():
        return job
    return named(job, _running())


def _running() -> Iterator[tuple[str, str]]:
    """Folder and name of each job that answers, or whose process says what it runs: one that is too busy to
    answer must not let another of its name be taken for it."""
    said = {str(Path(job.checkpoint_dir).absolute()): job.job for job in find_starting()}
    for running in find_all():
        if (status := ask_running(running, AskStatus())) is not None:
            yield running.checkpoint_dir, status["job"]
        elif (name := said.get(running.checkpoint_dir)) is not None:
            yield running.checkpoint_dir, name


def named(job: str, running: Iterable[tuple[str, str]]) -> str:
    found = [folder for folder, name in running if name == job]
    if len(found) > 1:
        raise UsageError(f"several jobs are called {job!r}: give a folder, one of {', '.join(found)}")
    return found[0] if found else job


JobFolder = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's checkpoint folder or URL, or its name while it runs on this machine.",
        callback=folder_of,
    ),
]
