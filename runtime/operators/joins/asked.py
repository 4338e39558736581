"""Asked: rows that look for partners in the runs of the other side of a join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.joins.runs import Run
from onceflow.runtime.records import Int64s


class Asked:
    """Rows of one side that ask runs of the other side for rows of their keys, at times of their own."""

    def __init__(self, row: Int64s, earliest: Int64s, latest: Int64s) -> None:
        self._order = stable_order(row)
        self._row, self._earliest, self._latest = (its[self._order] for its in (row, earliest, latest))

    def find(self, runs: Iterable[Run]) -> Iterator[tuple[Run, Int64s, Int64s]]:
        """Runs that have times which are asked for, and what each of them finds for each row; it is searched
        only for rows that ask for such times."""
        if not len(self._order):
            return
        first, last = int(self._earliest.min()), int(self._latest.max())
        for run in runs:
            if run.latest < first or run.earliest > last:
                continue
            is_near = (self._latest >= run.earliest) & (self._earliest <= run.latest)
            near = self._order[is_near]
            begin, counts = np.zeros((2, len(self._order)), np.int64)
            begin[near], counts[near] = run.find(
                self._row[is_near], self._earliest[is_near], self._latest[is_near]
            )
            yield run, begin, counts
