"""What Spark's garbage collection costs in the Python processes that run our code, and how it is spared."""

from __future__ import annotations

import gc
import sys

_MODULES_MIN = 50
"""Fewer are not worth it: what is garbage at that moment is never collected either."""
_modules = 0
"""How many there were when it was last done."""


def spare_imports() -> None:
    """Leave all objects that are there now out of every later collection, if many modules were imported since
    the last time.

    Spark keeps its Python processes and collects garbage in each after each use. The imported modules are
    half a million objects that live for ever: to look at them takes 0.1 s of CPU each time, eight
    times in a micro-batch of four tasks, and copies the pages that a fork shares with its daemon.
    """
    global _modules
    if len(sys.modules) - _modules >= _MODULES_MIN:
        _modules = len(sys.modules)
        gc.freeze()
