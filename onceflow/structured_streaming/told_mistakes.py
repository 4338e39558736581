"""Spark's errors in our words: the sentence that one of our formats raised, out of the text around it.

Spark raises what goes wrong in a data source as an error of its own: some forty lines of two languages, in
which our sentence is the last line of a Python traceback. `register` has such an error end the program with
the sentence alone.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import traceback
from types import TracebackType
from typing import Any

from onceflow.runtime.explained_calls import explained
from onceflow.runtime.uncaught import HOW_TO_SEE_ALL, WHOLE_ERROR

_OURS = re.compile(r"^\s*onceflow(?:\.\w+)*\.(\w+): (.+)$", re.MULTILINE)
_MAY_PASS = ("Retryable", "Unavailable")
_LACKS = re.compile(r"^\s*ModuleNotFoundError: (No module named '[\w.]+')", re.MULTILINE)
_SPARK = ("pyspark", "py4j")


@explained
def why_failed(error: BaseException | None) -> str | None:
    """What a format of onceflow's says in an error of Spark's, in one sentence: of what `start`, `load`,
    `save` or `awaitTermination` raised, or of `query.exception()`. None if onceflow says nothing in it."""
    if error is None:
        return None
    text = str(error)
    if found := _OURS.findall(text):
        name, said = found[-1]
        again = "; correct the address, or start the query again with the same checkpoint when it can be used"
        return str(said).strip() + (again if name in _MAY_PASS else "")
    if "onceflow" in text and (lacks := _LACKS.findall(text)):
        return (
            f"the Python that Spark starts for onceflow can't import it ({lacks[-1]}): install onceflow "
            f"there, or set PYSPARK_PYTHON before the session is made, on this machine to {sys.executable}"
        )
    return None


def tell_mistakes_in_a_sentence(place: Any = sys, shell: Any = None) -> None:
    """Have an error of Spark's that nobody catches end the program, or the cell of a notebook, with our
    sentence, if it has one. Doing it again changes nothing. `place`: where Python's hook for errors is;
    `shell`: the notebook's, if it is not the one that runs."""
    if not isinstance(place.excepthook, _Hook):
        place.excepthook = _Hook(place.excepthook)
    shell = shell or getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        shell.set_custom_exc((PySparkException, Py4JError), _in_a_notebook)


def _sentence(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> str | None:
    if kind.__module__.partition(".")[0] not in _SPARK or os.environ.get(WHOLE_ERROR):
        return None
    why = why_failed(error)
    return None if why is None else f"onceflow: {_users_line(where)}{why}\n{HOW_TO_SEE_ALL}"


def _users_line(where: TracebackType | None) -> str:
    """The line of the user's own that called Spark. Behind Spark's, PySpark may put lines of the process in
    which the error was raised, as if they had called each other."""
    called = itertools.takewhile(lambda frame: not _is_sparks(frame.filename), traceback.extract_tb(where))
    own = list(called)
    return f"{own[-1].filename}:{own[-1].lineno}: " if own else ""


def _is_sparks(filename: str) -> bool:
    return any(part in _SPARK for part in filename.replace("\\", "/").split("/"))


class _Hook:
    """Python's own place for errors that nobody catches, with the one that was there before behind it."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        said = _sentence(kind, error, where)
        if said is None:
            self._before(kind, error, where)
        else:
            sys.stdout.flush()
            sys.stderr.write(f"{said}\n")


def _in_a_notebook(
    shell: Any, kind: type[BaseException], error: BaseException, where: Any, tb_offset: int | None = None
) -> None:
    said = _sentence(kind, error, where)
    if said is None:
        shell.showtraceback((kind, error, where), tb_offset=tb_offset)
    else:
        sys.stderr.write(f"{said}\n")
