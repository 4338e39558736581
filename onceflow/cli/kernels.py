"""`onceflow kernels`: whether compiled kernels are used here; compiles them ahead of the first job."""

from __future__ import annotations

import os
import time

import typer

from onceflow.runtime.kernels.ops import ENVIRONMENT_VARIABLE, ops
from onceflow.runtime.kernels.preparation import prepare_kernels

app = typer.Typer(help="Compile the kernels ahead of the first job.", add_completion=False)


@app.command()
def kernels() -> None:
    """Run it once where jobs will run, or when an image is built: the first job then waits for nothing.
    Compiled kernels are kept in the user's cache folder, for this machine's kind of processor."""
    if not ops().are_compiled:
        is_off = ENVIRONMENT_VARIABLE in os.environ
        reason = f"{ENVIRONMENT_VARIABLE} says so" if is_off else "numba can't be imported here"
        typer.echo(f"kernels are off: {reason}")
        return
    started_s = time.monotonic()
    typer.echo("making the kernels ready (under a minute, the first time)")
    prepare_kernels()
    typer.echo(f"kernels are on, and ready after {time.monotonic() - started_s:.1f} s")
