"""Asked: rows that look for partners in the runs of the other side of a join."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.joins.runs import Run
from onceflow.runtime.records import Int64s


class Asked:
    """Rows of one side that ask runs of the other side for rows of their keys, at times of their own."""

    def __init__(self, row: Int64s, earliest: Int64s, latest: Int64s) -> None:
        self._order = stable_order(row)
        self._row, self._earliest, self._latest = (its[self._order] for its in (row, earliest, latest))

    def find(self, run: Run) -> tuple[Int64s, Int64s]:
        """What the run finds for each; it is searched only for those whose times it may have."""
        begin, counts = np.zeros((2, len(self._order)), np.int64)
        is_near = (self._latest >= run.earliest) & (self._earliest <= run.latest)
        if is_near.any():
            near = self._order[is_near]
            of = (self._row[is_near], self._earliest[is_near], self._latest[is_near])
            begin[near], counts[near] = run.find(*of)
        return begin, counts
