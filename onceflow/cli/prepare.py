"""`onceflow prepare`: makes ready what the first job would wait for, or every job would do anew."""

from __future__ import annotations

import time

import typer

from onceflow.cli.kernels import kernels
from onceflow.runtime.environment.java import JavaError, find_java
from onceflow.runtime.hosts.spark.class_archive import ArchiveError, find_archive, make_archive

app = typer.Typer(help="Make ready what the first job would wait for.", add_completion=False)


@app.command()
def prepare() -> None:
    """Run it once where jobs will run, or when an image is built. It compiles the kernels, as `onceflow
    kernels` does, and makes an archive of Spark's classes, so that a local Spark starts with about half
    of the work. Both are kept in the user's cache folder; without them everything works, later."""
    kernels()
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
