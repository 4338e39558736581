"""What Spark's garbage collection costs in the Python processes that run our code, and how it is spared."""

from __future__ import annotations

import gc

_is_done = False


def spare_imports() -> None:
    """Once per process: all objects that are there now are left out of every later collection.

    Spark keeps its Python processes and collects garbage in each after each use. The imported modules are
    half a million objects that live for ever: to look at them takes 0.1 s of CPU each time, eight
    times in a micro-batch of four tasks, and copies the pages that a fork shares with its daemon.
    """
    global _is_done
    if not _is_done:
        _is_done = True
        gc.freeze()
