"""`onceflow prepare`: makes ready what the first job would wait for, or every job would do anew."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from onceflow.runtime.environment.java import JavaError, find_java
from onceflow.runtime.hosts.spark.class_archive import ArchiveError, find_archive, make_archive
from onceflow.runtime.kernels.ops import ENVIRONMENT_VARIABLE, ops
from onceflow.runtime.kernels.preparation import prepare_kernels

app = typer.Typer(help="Make ready what the first job would wait for.", add_completion=False)


@app.command()
def prepare(
    kernels_only: Annotated[
        bool, typer.Option("--kernels-only", help="For a machine on which no job is started, only slots.")
    ] = False,
) -> None:
    """Run it once where jobs will run, or when an image is built. It compiles the kernels, and makes an
    archive of Spark's classes, so that a local Spark starts with about half of the work. Both are kept in the
    user's cache folder; without them everything works, later."""
    _prepare_kernels()
    if not kernels_only:
        _prepare_classes()


def _prepare_kernels() -> None:
    if not ops().are_compiled:
        is_off = ENVIRONMENT_VARIABLE in os.environ
        reason = f"{ENVIRONMENT_VARIABLE} says so" if is_off else "numba can't be imported here"
        typer.echo(f"kernels are off: {reason}")
        return
    started_s = time.monotonic()
    typer.echo("making the kernels ready (under a minute, the first time)")
    prepare_kernels()
    typer.echo(f"kernels are on, and ready after {time.monotonic() - started_s:.1f} s")


def _prepare_classes() -> None:
    try:
        java = find_java()
        if find_archive(java) is not None:
            typer.echo("Spark's classes are ready already")
            return
        started_s = time.monotonic()
        typer.echo("making Spark's classes ready (half a minute or so)")
        megabytes = make_archive(java).stat().st_size / 1e6
        typer.echo(
            f"Spark's classes are ready after {time.monotonic() - started_s:.1f} s, {megabytes:.0f} MB"
        )
    except (JavaError, ArchiveError) as error:
        typer.echo(f"Spark's classes are not made ready: {error}")
