"""The Python in which Spark starts slots: what it has to be, and one sentence where it is not.

What is wrong there is told in two ways. Where onceflow is installed, the daemon looks before it forks a
slot (`check_environment`), and Spark passes on what it says. Where it is not, or there is no Python at
all, only Spark's own text says so, and `environment_error` reads it. The daemon imports this first, in
whatever Python it was started with, so it imports nothing that has to be installed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from onceflow.runtime.version import VERSION

EXPECTED = "ONCEFLOW_EXPECTED"
"""The variable in the environment of the daemon that says what the driver is: `0.1.0 3.11`, its onceflow
and its Python."""

SAFE_PATH = "PYTHONSAFEPATH"
"""Python's own variable: what is started by `-m` does not import from the folder it is started in."""

_MARK = "onceflow: "
_SEND = (
    "or send an environment that has it: --archives environment.tar.gz#environment with "
    "PYSPARK_PYTHON=./environment/bin/python"
)
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)".*?: (?:.*?error=\d+, )?(.+)')
_FROM_PYTHON = re.compile(r"Error from python worker:\n(.*?)\nPYTHONPATH was:", re.DOTALL)
_NO_MODULE = re.compile(r"No module named '(onceflow[\w.]*)'")
_BEFORE_IMPORT = re.compile(r"\s*(\S+): Error while finding module specification")
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\].*?worker has different version: (\S+) than that in")


def expected() -> str:
    """The value of EXPECTED that this process, the driver, gives to the daemons of its slots."""
    return f"{VERSION} {_python_version()}"


def check_environment(environment: Mapping[str, str]) -> None:
    """Called by the daemon before it imports anything that has to be installed. `environment`: that of its
    process. Raises SystemExit with a sentence if the driver runs another Python or another onceflow; looks
    at nothing if the driver has not said what it runs."""
    version, _, python = environment.get(EXPECTED, "").partition(" ")
    if python and python != _python_version():
        raise SystemExit(_MARK + _other_python(_python_version(), python, sys.executable))
    if version and version != VERSION:
        raise SystemExit(
            f"{_MARK}the slots' Python, {sys.executable}, has onceflow {VERSION}, the driver {version}: "
            "install the same version on both"
        )


def import_error(name: str, error: ImportError) -> SystemExit:
    """What the daemon raises when it can't import a module that slots need."""
    said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return SystemExit(
        f"{_MARK}the slots' Python, {sys.executable}, can't import {name}: {said}; install onceflow with "
        f"all that it needs there, {_SEND}"
    )


def environment_error(text: str) -> str | None:
    """The sentence for a text of Spark's that says that a Python for slots could not be started, or not the
    right one; None for any other text. Called in the driver."""
    if "PYTHON_VERSION_MISMATCH" in text and (other := _OTHER_PYTHON.search(text)):
        return _other_python(other[1], _python_version(), os.environ.get("PYSPARK_PYTHON", ""))
    if missing := _NO_PROGRAM.search(text):
        return (
            f"the slots' Python, {missing[1]}, can't be started ({missing[2].strip()}): set PYSPARK_PYTHON "
            f"to the path of a Python {_python_version()} that is there and has onceflow, {_SEND}"
        )
    if told := _FROM_PYTHON.search(text):
        return _told_by_python(told[1])
    return None


def _told_by_python(said: str) -> str:
    """The sentence for what a Python has said on standard error, which ended before it could fork a slot."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if ours := [line for line in lines if line.startswith(_MARK)]:
        return ours[-1].removeprefix(_MARK)
    if missing := _NO_MODULE.search(said):
        started = _BEFORE_IMPORT.search(said)
        python = started[1] if started else os.environ.get("PYSPARK_PYTHON", "python3")
        if missing[1] == "onceflow":
            return (
                f"the slots' Python, {python}, has no onceflow: install onceflow {VERSION} there, in a "
                f"Python {_python_version()}, {_SEND}"
            )
        return (
            f"the slots' Python, {python}, has another onceflow than the driver, which has {VERSION}: "
            "install the same version on both"
        )
    return f"the slots' Python can't be started: {lines[-1] if lines else 'it gave no reason'}"


def _other_python(theirs: str, ours: str, path: str) -> str:
    which = f", {path}," if path else ""
    return (
        f"the slots' Python{which} is {theirs}, the driver's {ours}: set PYSPARK_PYTHON to a Python {ours} "
        f"that is there and has onceflow, {_SEND}"
    )


def _python_version() -> str:
    return "{}.{}".format(*sys.version_info[:2])
