"""How Python processes that Spark starts come to do what runtime/hosts/spark/installed_package.py does.

`register` sends the folder worker_startup along with our data source; Python finds the sitecustomize.py in
it before it imports anything of Spark's. That imports this file in each such process, so this one imports
little.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

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


def forget_startup(path: list[str], environment: MutableMapping[str, str]) -> None:
    """Take the folder out again, for what this process imports and starts."""
    path[:] = [entry for entry in path if entry != STARTUP]
    entries = environment.get(_VARIABLE, "").split(os.pathsep)
    environment[_VARIABLE] = os.pathsep.join(entry for entry in entries if entry != STARTUP)
