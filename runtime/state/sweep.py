"""Sweep: takes what has expired out of memory, a bounded piece at a time.

There is no timer for a key. A pass goes over the column with the earliest time of each row, some ten
thousand rows at a time, and forgets what has expired in those rows that have something. Whoever owns it lets
it do a piece with each batch, watermark and barrier. The next pass begins a sixteenth of the time to live
later: so memory holds what is alive, a sixteenth more, and what came while a pass went on.
"""

from __future__ import annotations

import numpy as np

from onceflow.runtime.records import WATERMARK_MIN_MS, Indices
from onceflow.runtime.state.expiring_values import ExpiringValues

LOOKED_AT_MAX = 1 << 16
"""Rows whose time is compared in a piece: some 50 us."""
FORGOTTEN_MAX = 1 << 12
"""Rows in which something is forgotten in a piece: some 2 ms, if none has a large map or list."""
_PASSES = 16
"""How many passes there are for each time to live, at most."""


class Sweep:
    """The passes over one state."""

    def __init__(self, state: ExpiringValues) -> None:
        self._state = state
        self._pause_ms = max(1, state.ttl.ms // _PASSES)
        self._next_ms = WATERMARK_MIN_MS
        """When the next pass may begin."""
        self._place: int | None = None
        """Where this pass goes on; None: there is none."""

    def piece(self) -> Indices | None:
        """Do a piece. Returns the rows in which something was forgotten; None: no pass is due."""
        passed_ms = self._state.passed_ms
        if self._place is None:
            if passed_ms < self._next_ms or passed_ms == WATERMARK_MIN_MS:
                return None
            self._next_ms, self._place = passed_ms + self._pause_ms, 0
        column = self._state.column()
        end = self._place + LOOKED_AT_MAX
        expired = self._place + np.flatnonzero(column[self._place : end] <= passed_ms)
        if len(expired) > FORGOTTEN_MAX:
            expired = expired[:FORGOTTEN_MAX]
            end = int(expired[-1]) + 1
        self._place = end if end < len(column) else None
        del column  # a view of it would forbid more rows
        self._state.expire(expired, passed_ms)
        return expired

    def renumbered(self) -> None:
        """Rows have other numbers: a pass that goes on begins again."""
        if self._place is not None:
            self._place = 0

    @property
    def is_between_passes(self) -> bool:
        return self._place is None
