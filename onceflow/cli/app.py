"""The `onceflow` command: finds the module of a subcommand and prints errors as one sentence.

A command is a module with a `typer.Typer(add_completion=False)` named `app`, listed in COMMANDS. It is
imported when it is called, not before, so that `onceflow --help` is quick. Exit codes: 0 done, 1 the
job (or whatever was asked for) failed, 2 wrong use.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onceflow import __version__
from onceflow.runtime.errors import OnceflowError, UsageError

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("onceflow.cli.init", "Make a project with a job and its tests."),
    "run": ("onceflow.cli.run", "Run a job until it ends. Run again after any crash: it goes on."),
    "plan": ("onceflow.cli.plan", "Print a job's graph: operators, uids, chains, exchanges, parallelism."),
    "list": ("onceflow.cli.list_jobs", "The jobs that you run on this machine."),
    "status": ("onceflow.cli.status", "What a running job does now."),
    "stop": ("onceflow.cli.stop", "Stop a running job cleanly after a last checkpoint."),
    "cancel": ("onceflow.cli.cancel", "End a running job at once, without a last checkpoint."),
    "rescale": ("onceflow.cli.rescale", "Give a running job another number of slots."),
    "connectors": (
        "onceflow.cli.connectors",
        "List sources, sinks and formats by name, with their packages.",
    ),
    "checkpoints": ("onceflow.cli.checkpoints", "List the checkpoints in a folder."),
    "savepoint": ("onceflow.cli.savepoint", "Take a savepoint: a checkpoint that is yours."),
    "savepoints": ("onceflow.cli.savepoints", "Look at savepoints, compare, export and delete them."),
    "compare": ("onceflow.cli.compare", "Compare what two dry runs would have written."),
    "state": ("onceflow.cli.state", "Print a job's state, of a checkpoint or a savepoint, as tables."),
    "serve-state": ("onceflow.cli.serve_state", "Answer queries of a job's state, of its last checkpoint."),
    "query": ("onceflow.cli.query", "Ask what a job knows of a key, as of its last checkpoint."),
    "broker": (
        "onceflow.cli.broker",
        "A real Kafka on this machine: start, stop, topics, records in and out.",
    ),
    "transactions": ("onceflow.cli.transactions", "Find and end transactions that hold readers back."),
    "prepare": ("onceflow.cli.prepare", "Make ready what the first job would wait for."),
    "verify": ("onceflow.cli.verify", "Audit an output topic: gaps, duplicates, or wrong window totals."),
}
"""Name of the command -> (module that holds its `app`, its line in `onceflow --help`)."""


class LazyCommands(TyperGroup):
    """Imports a command's module only when that command is called; turns our errors into exit codes."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What help and suggestions need of a command, without importing it."""
        if cmd_name not in COMMANDS:
            return None
        outline = typer.Typer(help=COMMANDS[cmd_name][1])
        outline.callback(invoke_without_command=True)(lambda: None)
        command = typer.main.get_command(outline)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name = args[0]
        if name not in COMMANDS:
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "'onceflow --help' lists them"
            raise UsageError(f"there is no command {name!r}: {hint}")
        command = typer.main.get_command(importlib.import_module(COMMANDS[name][0]).app)
        command.name = name
        return name, command, args[1:]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OnceflowError as error:
            if ctx.params["debug"]:
                raise
            typer.echo(f"onceflow: {error}", err=True)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None
        except OSError as error:
            is_a_programs = ctx.invoked_subcommand in _RUN_PROGRAMS  # it says where the user's code met it
            if ctx.params["debug"] or is_a_programs or isinstance(error, BrokenPipeError):
                raise
            way_out = "see that this user can use it, and run the command again (--debug shows where it was)"
            typer.echo(f"onceflow: {error}: {way_out}", err=True)
            raise typer.Exit(1) from None


_RUN_PROGRAMS = frozenset({"run", "plan"})

app = typer.Typer(
    cls=LazyCommands,
    help="Exactly-once streams on Kafka, hosted by Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onceflow {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that come before the command."""


def main() -> None:
    """The console script."""
    code = 0
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc()  # for --debug: Python's hook would tell a mistake in a sentence
        code = 1
    # Python's own shutdown can crash under threads that wait inside librdkafka, and under
    # those of Arrow and polars, of which Python knows nothing.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
