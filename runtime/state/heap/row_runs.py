"""Rows that follow one on the other: what lies there is a part of its column, and need not be gathered."""

from __future__ import annotations

from onceflow.runtime.records import Indices


def run_of(rows: Indices) -> slice | None:
    """The rows as the part of a column that they are, if each is one more than the one before."""
    count = len(rows)
    if not count:
        return None
    first = int(rows[0])
    # The last one alone answers nearly always; all of them are looked at only to be sure.
    if int(rows[-1]) - first != count - 1 or not (rows[1:] - rows[:-1] == 1).all():
        return None
    return slice(first, first + count)
