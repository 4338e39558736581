"""RowTrigger: what the operator of windows with a trigger asks it, for many windows at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from onceflow.runtime.operators.operator import OperatorContext
from onceflow.runtime.operators.triggers.own import TriggerResult
from onceflow.runtime.operators.windows.ranks import is_last, rank
from onceflow.runtime.operators.windows.span_rows import Changed, SpanRows
from onceflow.runtime.records import WATERMARK_MAX_MS, Indices, Int64s, Mask, Records
from onceflow.runtime.state.number_columns import NumberColumn
from onceflow.runtime.state.table import RowColumn

Acts = npt.NDArray[np.int8]
"""A TriggerResult for each record or window."""


@dataclass(frozen=True, slots=True)
class Acted:
    """What a trigger has decided at a time, window by window, in order; a window may come more than once."""

    rows: Indices
    acts: Acts
    times: Int64s
    """The time each was decided for, by the watermark or the clock."""
    looked: int
    """How many windows or timers were looked at; more than 0."""


class RowTrigger(Protocol):
    """One subtask's trigger, with a place in its columns for each window. It decides; what is sent and purged
    is the operator's business."""

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        """What it keeps of each window, by the name in a snapshot."""
        ...

    @property
    def functions(self) -> list[Any]:
        """What is called of the user's."""
        ...

    def open(self, context: OperatorContext, spans: SpanRows) -> None: ...

    def restored(self, rows: Indices) -> None:
        """These rows were loaded, or have come back from where they were."""
        ...

    def gather(self, changed: Changed, is_grown: Mask) -> None:
        """Windows are about to be joined: those that are `is_grown` get other bounds than a part has."""
        ...

    def merge(self, into: Indices, parts: Indices) -> None:
        """What is kept of `parts` belongs to the rows of `into`, which may come more than once."""
        ...

    def begin(self, rows: Indices, is_new: Mask, is_grown: Mask) -> None:
        """These are the windows that a batch has changed; those that are new have nothing yet."""
        ...

    def on_records(self, records: Records, rows: Indices, passed_ms: int | Int64s) -> Acts:
        """What each record leads to, in the window that its row is; `passed_ms`: how far event time has come
        for it."""
        ...

    @property
    def holds_rows(self) -> bool:
        """Whether it holds numbers of rows between two calls."""
        ...

    @property
    def is_firing(self) -> bool:
        """Whether something may be due by the watermark; rows are not renumbered meanwhile."""
        ...

    def on_watermark(self, time_ms: int) -> None: ...

    def due_of(self, rows: Indices, passed_ms: Int64s) -> Acted | None:
        """What is due in these windows, for which event time has come so far, before records change them."""
        ...

    def by_event_time(self, until_ms: int, count: int) -> Acted | None:
        """About so much of what is due by the watermark until this time, which it has reached; None:
        nothing."""
        ...

    def by_clock(self, now_ms: int, count: int) -> Acted | None: ...

    def event_ms(self, rows: Indices) -> Int64s:
        """When each of these windows is due by the watermark; NO_WAKE_MS: never."""
        ...

    def clock_ms(self, rows: Indices) -> Int64s:
        """The same by the clock."""
        ...

    @property
    def next_event_ms(self) -> int:
        """Nothing is due before the watermark is here; WATERMARK_MAX_MS: nothing."""
        ...

    @property
    def next_clock_ms(self) -> int | None: ...

    def is_blank(self, rows: Indices) -> Mask:
        """Whether it keeps nothing of a window that a fresh one would not have."""
        ...

    def forget(self, rows: Indices) -> None:
        """These windows end for good."""
        ...


def fires_each(seen: NumberColumn, every: int, rows: Indices) -> Acts:
    """Fire with each so many rows of a window; `seen`: of each window since it fired. A session that has been
    merged of more fires with its next one."""
    if not len(rows):
        return np.zeros(0, np.int8)
    count = np.minimum(seen.of(rows), every - 1) + rank(rows) + 1
    last = is_last(rows)
    seen.put(rows[last], count[last] % every)
    return np.where(count % every == 0, TriggerResult.FIRE, TriggerResult.CONTINUE).astype(np.int8)


def next_multiple(times: Int64s, interval_ms: int) -> Int64s:
    """The first multiple of an interval behind each of these times."""
    return (np.minimum(times, WATERMARK_MAX_MS - interval_ms - 1) // interval_ms + 1) * interval_ms
