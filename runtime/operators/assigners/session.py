"""Session windows: rows of a key without a gap between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.operators.assigners.own_gaps import OwnGap


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that grow: a row at t belongs to [t, t + gap), and windows of a key that overlap or touch
    become one. `gap_ms` is for all rows, unless `gap`, a column, an expression or a function, says it for
    each."""

    gap_ms: int
    gap: str | pl.Expr | OwnGap | None = None

    @property
    def title(self) -> str:
        """What a plan says of these windows."""
        if self.gap is None:
            return f"session with a gap of {self.gap_ms} ms"
        return f"session with a gap by {self.gap}"

    @property
    def columns_read(self) -> frozenset[str]:
        """The columns that say the gap."""
        if self.gap is None:
            return frozenset()
        if isinstance(self.gap, OwnGap):
            return self.gap.columns_read
        return frozenset([self.gap] if isinstance(self.gap, str) else self.gap.meta.root_names())


@explained
def session(gap: str | int | pl.Expr | Callable[[Any], Any]) -> Session:
    """Session windows: a window of a key ends when nothing has come for `gap` of event time.

    `gap`: a duration ("30 min", or int ms); or the name of a column or an expression that says it for each
    row, in ms or as a duration, at least 1 ms; or a function `fn(record)` that returns it, as int ms, a
    timedelta or text, and must give the same for the same record. Rows exactly a gap apart are in one
    session, whose end is its last row's time plus the gap. Raises OptionError for what is none of these.
    """
    if isinstance(gap, pl.Expr):
        return Session(0, gap)
    if isinstance(gap, str) and gap and not gap.strip()[:1].isdigit():
        return Session(0, gap)
    if callable(gap):
        return Session(0, OwnGap(gap))
    gap_ms = duration_ms(gap, "gap")
    if gap_ms < 1:
        raise OptionError(f"gap={gap!r}: a session's gap is at least 1 ms long: write a longer one")
    return Session(gap_ms)
