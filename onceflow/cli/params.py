"""`--param` and `--params-file`: values for a job's parameters."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from onceflow.runtime.errors import OptionError
from onceflow.runtime.functions.parameters import Declared, SecretSource
from onceflow.runtime.functions.resolve import environment_name

ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="A parameter of the job; repeatable."),
]
ParamsFileOption = Annotated[
    Path | None, typer.Option("--params-file", help="Parameters from a .toml or .json file.")
]


def given_params(pairs: Sequence[str], file: Path | None, declared: Declared) -> dict[str, Any]:
    """What was given on the command line, over what is in the file. Raises OptionError for a secret on the
    command line, where every user of the machine sees it."""
    found = {} if file is None else dict(_read(file))
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if isinstance(declared.get(name), SecretSource):
            raise OptionError(
                f"--param {name}: it is a secret, and others see the command line: give it in the "
                f"environment as {environment_name(name)}, or by --params-file"
            )
        if not equals or not name:
            raise OptionError(f"--param {pair!r}: write NAME=VALUE")
        found[name] = value
    return found


def _read(file: Path) -> Mapping[str, Any]:
    try:
        text = file.read_text()
        found = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise OptionError(f"--params-file {file}: {error.strerror}; name a file that can be read") from None
    except (ValueError, RecursionError):  # nothing of its content is said: secrets may be in it
        raise OptionError(
            f"--params-file {file}: it is neither TOML nor, as .json, JSON: write name = value lines"
        ) from None
    if not isinstance(found, Mapping):
        raise OptionError(f"--params-file {file}: wanted are names and values, as in retries = 5")
    return found
