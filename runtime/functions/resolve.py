"""The values of a job's parameters for a run, and where the driver's process finds them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onceflow.runtime.errors import OptionError
from onceflow.runtime.functions.parameters import Declared, Parameters, Secret, SecretSource
from onceflow.runtime.nearest import nearest

ENVIRONMENT = "ONCEFLOW_PARAM_"
_BOOLS = {"true": True, "false": False}


def resolve(
    declared: Declared, given: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> Parameters:
    """The values for a run: what was given, else the environment's ONCEFLOW_PARAM_<NAME>, else what is
    declared. Raises OptionError for a name that is not declared, a text that is not of the type, one that is
    missing."""
    if declared:
        for name in given:
            if name not in declared:
                raise OptionError(
                    f"parameter {name!r} is not one of the job's{nearest(name, declared)}: it declares "
                    f"{', '.join(declared)}"
                )
    values = {name: _value(name, wanted, given, environ) for name, wanted in declared.items()}
    return Parameters(dict(given) | values)


def environment_name(name: str) -> str:
    """The environment variable that gives a parameter."""
    return ENVIRONMENT + name.replace("-", "_").upper()


def _value(name: str, wanted: Any, given: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
    found = given.get(name)
    if found is None:
        found = environ.get(environment_name(name))
    if isinstance(wanted, SecretSource):
        return _secret(name, wanted, found, environ)
    if found is None and isinstance(wanted, type):
        raise OptionError(
            f"parameter {name!r} is missing: give --param {name}=..., {environment_name(name)} in the "
            f'environment, or job.run(params={{"{name}": ...}})'
        )
    if found is None:
        return wanted
    return _converted(name, wanted if isinstance(wanted, type) else type(wanted), found)


def _secret(name: str, source: SecretSource, found: Any, environ: Mapping[str, str]) -> Secret:
    if found is None and source.env is not None:
        found = environ.get(source.env)
    if found is None and source.file is not None:
        try:
            found = Path(source.file).expanduser().read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"secret {name!r} can't be read from {source.file}: {_reason(error)}") from None
    if isinstance(found, Secret):
        return found
    if not isinstance(found, str) or not found:
        place = f"{source.env} or " if source.env else ""
        raise OptionError(
            f"secret {name!r} is missing or empty: set {place}{environment_name(name)} in the environment of "
            "the command that runs the job"
        )
    return Secret(found)


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"


def _converted(name: str, wanted: type, found: Any) -> Any:
    if isinstance(found, str) and wanted is bool and found.lower() in _BOOLS:
        return _BOOLS[found.lower()]
    if isinstance(found, wanted) and (wanted is bool or not isinstance(found, bool)):
        return found
    if wanted in (int, float) and isinstance(found, (str, int)) and not isinstance(found, bool):
        try:
            return wanted(found)
        except ValueError:
            pass
    offered = "true or false" if wanted is bool else f"{wanted.__name__}"
    raise OptionError(f"parameter {name!r} is {found!r}: expected {offered}")
