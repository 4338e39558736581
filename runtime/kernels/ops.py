"""Which of the two does the work of kernels in this process: the kernels, or the plain code beside them.

The choice is one object. Whatever has both forms asks `ops()`: an object when it is made, a function at each
batch. Nobody is handed a flag, so no two parts of a process can disagree (ADR 91).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_LOG = logging.getLogger(__name__)

ENVIRONMENT_VARIABLE = "ONCEFLOW_KERNELS"
"""The environment variable that turns kernels off, by `off`."""


@dataclass(frozen=True, slots=True)
class Ops:
    """One of the two: COMPILED or PLAIN."""

    name: str
    are_compiled: bool
    """Whether it is the kernels, so that files that import numba may be imported."""

    def __str__(self) -> str:
        return self.name


COMPILED = Ops("compiled", are_compiled=True)
"""Kernels."""
PLAIN = Ops("plain", are_compiled=False)
"""The simple code that says what is right (ADR 91)."""


@dataclass(slots=True)
class _Process:
    """What this process has chosen; None: nobody has asked yet."""

    chosen: Ops | None = None


_PROCESS = _Process()


def ops() -> Ops:
    """What this process works with. It is chosen at the first question, for the life of the process:
    COMPILED if numba works here and the environment does not turn kernels off. Any thread."""
    chosen = _PROCESS.chosen
    if chosen is None:
        chosen = _PROCESS.chosen = _choose()
    return chosen


@contextmanager
def using(chosen: Ops) -> Iterator[None]:
    """These ops in the whole process meanwhile, all its threads included: for tests and measurements that
    compare the two. COMPILED only where `ops_here` has them."""
    before = ops()
    _PROCESS.chosen = chosen
    try:
        yield
    finally:
        _PROCESS.chosen = before


def ops_here() -> tuple[Ops, ...]:
    """What there is to choose from in this process: PLAIN, and COMPILED where kernels are not off."""
    return (PLAIN, COMPILED) if ops().are_compiled else (PLAIN,)


def are_off() -> bool:
    """Whether the environment turns kernels off."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "").lower() == "off"


def _choose() -> Ops:
    if are_off():
        return PLAIN
    try:
        import numba  # noqa: F401 - half a second, and not on every platform
    except ImportError as error:
        _LOG.warning("numba can't be used, so onceflow works by its simple code, much slower: %s", error)
        return PLAIN
    return COMPILED
