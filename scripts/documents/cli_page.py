"""docs/reference/cli.md: every command with its arguments and options, as the commands say them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer.main

from onceflow.cli.app import COMMANDS, app, options

HEAD = """# The command line

Every command prints its part of this page with `--help`. Exit codes: 0 done, 1 the job (or the request)
failed, 2 wrong use.
[Operations](../operations.md) explains the options of `onceflow run`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_everywhere(), *(line for name in COMMANDS for line in _command(name))])


def _everywhere() -> Iterator[str]:
    command = typer.main.get_command(app)
    yield "Options before the command:\n"
    told = [p for p in command.params if p.name not in ("install_completion", "show_completion")]
    yield from _table(told, get_type_hints(options))


def _command(name: str) -> Iterator[str]:
    module, line = COMMANDS[name]
    command: Any = typer.main.get_command(importlib.import_module(module).app)
    yield f"## onceflow {name}\n"
    yield f"{line}\n"
    subcommands = getattr(command, "commands", {})
    for part, its in subcommands.items():
        yield f"### onceflow {name} {part}\n"
        yield from _described(f"{name} {part}", its)
    if not subcommands:
        yield from _described(name, command)


def _described(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [_argument(p) if p.required else f"[{_argument(p)}]" for p in arguments]
    options = ["[OPTIONS]"] if len(command.params) > len(arguments) else []
    yield f"    onceflow {' '.join([name, *options, *words])}\n"
    yield f"{_prose(command.help or '')}\n"
    types = get_type_hints(inspect.unwrap(command.callback)) if command.callback else {}
    yield from _table(command.params, types)


def _argument(parameter: Any) -> str:
    word = str(parameter.metavar or parameter.name.upper())
    return word if parameter.nargs == 1 else f"{word}..."


def _table(parameters: list[Any], types: Mapping[str, Any]) -> Iterator[str]:
    """The arguments and options that are told, with the types of the command's function."""
    rows = [_row(p, types.get(p.name)) for p in parameters if p.name != "help" and not p.hidden]
    if rows:
        yield (
            "\n".join(["| argument or option | what it is | default |", "| --- | --- | --- |", *rows]) + "\n"
        )


def _row(parameter: Any, of: Any) -> str:
    names = [_argument(parameter)]
    if parameter.param_type_name == "option":
        names = [f"{name}{_value(parameter, of)}" for name in (*parameter.opts, *parameter.secondary_opts)]
    said = ", ".join(f"`{name}`" for name in names)
    return f"| {said} | {_cell(parameter.help or '')} | {_default(parameter)} |".replace("  ", " ")


def _value(parameter: Any, of: Any) -> str:
    """What follows an option's name: nothing for a flag, else the word for its value."""
    parts = [part for part in get_args(of) if part is not type(None)] or [of]
    if parts == [bool]:
        return ""
    if get_origin(of) is Literal:
        return " " + "\\|".join(map(str, parts))
    if parameter.metavar:
        return f" {parameter.metavar}"
    return " N" if parts[0] in (int, float) else " TEXT"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if parameter.default in (None, False, (), []) or callable(parameter.default):
        return ""
    return f"`{getattr(parameter.default, 'value', parameter.default)}`"


def _cell(text: str) -> str:
    return " ".join(_prose(text).split()).replace("|", "\\|")


def _prose(text: str) -> str:
    return text.replace("\b\n", "").replace("<", "&lt;").strip()
