"""Slots that follow one on the other: what lies there is a part of its column, and need not be gathered."""

from __future__ import annotations

from onceflow.runtime.records import Indices


def run_of(slots: Indices) -> slice | None:
    """The slots as the part of a column that they are, if each is one more than the one before."""
    count = len(slots)
    if not count:
        return None
    first = int(slots[0])
    # The last one alone answers nearly always; all of them are looked at only to be sure.
    if int(slots[-1]) - first != count - 1 or not (slots[1:] - slots[:-1] == 1).all():
        return None
    return slice(first, first + count)
