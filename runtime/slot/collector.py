"""Python's cyclic garbage collector while a slot runs its loop."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """No collection by itself inside: it would walk every message of every batch.

    What an attempt before this one has left in cycles is collected first; what lives now is frozen, out of
    all collections until the end. What somebody has frozen before stays frozen at the end: another slot on a
    thread of this process, Spark's daemon, or a program with many objects of its own.
    """
    gc.collect()
    freezes = gc.get_freeze_count() == 0
    if freezes:
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if freezes:
            gc.unfreeze()
