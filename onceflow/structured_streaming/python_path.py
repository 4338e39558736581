"""How Python processes that Spark starts come to do what runtime/hosts/spark/installed_package.py does.

`register` sends the folder worker_startup along with our data source; Python finds the sitecustomize.py in
it before it imports anything of Spark's. That imports this file in each such process, so this one imports
little.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STARTUP = str(Path(__file__).with_name("worker_startup"))
_VARIABLE = "PYTHONPATH"


@contextmanager
def startup_sent_along(environment: MutableMapping[str, str]) -> Iterator[None]:
    """`environment` is what a SparkContext gives to the processes of functions that are made meanwhile.

    Only of those: processes with another environment have daemons of their own, and those of the user's
    functions shall stay as they are.
    """
    before = environment.get(_VARIABLE)
    environment[_VARIABLE] = os.pathsep.join([STARTUP, before] if before else [STARTUP])
    try:
        yield
    finally:
        if before is None:
            del environment[_VARIABLE]
        else:
            environment[_VARIABLE] = before


@contextmanager
def this_python(context: Any, environment: Mapping[str, str]) -> Iterator[None]:
    """Functions that are made meanwhile run in this program's Python, if Spark runs on this machine alone
    and nobody chose another one.

    Spark takes the `python3` of the search path, which is the system's where a program is run as
    `.venv/bin/python program.py`, and knows nothing of what is installed here.
    """
    before = context.pythonExec
    is_chosen = environment.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python", "")
    if context.master.partition("[")[0] == "local" and not is_chosen:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


def forget_startup(path: list[str], environment: MutableMapping[str, str]) -> None:
    """Take the folder out again, for what this process imports and starts."""
    path[:] = [entry for entry in path if entry != STARTUP]
    entries = environment.get(_VARIABLE, "").split(os.pathsep)
    environment[_VARIABLE] = os.pathsep.join(entry for entry in entries if entry != STARTUP)
