"""From a batch's event times to the spans of its rows, for each kind of window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.operators.aggregation.typed_aggregates import argument_field
from onceflow.runtime.operators.assigners.by_clock import ByClock, TimeWindow
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.cumulative import Cumulative
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.assigners.own_gaps import OwnGap
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner, own_spans
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling, check_event_time
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s, Records

Window = TimeWindow | ByClock | CountWindow | GlobalWindow
"""What a stream of rows by key is cut into."""
SpanWindow = TimeWindow | GlobalWindow
"""Windows that are found by their bounds."""


@dataclass(frozen=True, slots=True)
class NewSpans:
    """The windows that a batch's rows belong to by themselves."""

    starts: Int64s
    ends: Int64s
    place: Indices | None = None
    """The place in the batch of the row of each; None: one for each row, in order."""


SpansOf = Callable[[Records], NewSpans]
"""Makes the spans of the rows of a batch, which has at least one. Raises Fatal and UserFunctionError."""


def spans_of(window: SpanWindow, uid: str) -> SpansOf:
    match window:
        case Session():
            return _sessions(window, uid)
        case Sliding():
            return lambda records: _sliding(window, _times(records))
        case Tumbling():
            return lambda records: _tumbling(window, _times(records))
        case Cumulative():
            return lambda records: _cumulative(window, _times(records))
        case GlobalWindow():
            return _all_time
        case WindowAssigner():
            return lambda records: NewSpans(*own_spans(window, uid, records))


def check_gap(window: Window, schema: pa.Schema, uid: str) -> None:
    """Raises GraphError if the columns of this schema can't say a session's gap."""
    window = window.window if isinstance(window, ByClock) else window
    if not isinstance(window, Session) or not isinstance(window.gap, str | pl.Expr):
        return
    arrow = argument_field(window.gap, schema, f"operator {uid!r}: session").type
    if not (pa.types.is_integer(arrow) or pa.types.is_duration(arrow)):
        raise GraphError(f"operator {uid!r}: session({window.gap}) is {arrow}: give whole ms or a duration")


def _times(records: Records) -> Int64s:
    assert records.event_time is not None, "windows need event time"
    return records.event_time


def _all_time(records: Records) -> NewSpans:
    lowest_ms, end_ms = (np.full(len(records), t, np.int64) for t in (WATERMARK_MIN_MS, WATERMARK_MAX_MS))
    return NewSpans(lowest_ms, end_ms)


def _tumbling(window: Tumbling, times: Int64s) -> NewSpans:
    starts = window.starts(times)
    return NewSpans(starts, starts + window.size_ms)


def _sliding(window: Sliding, times: Int64s) -> NewSpans:
    """Each row once for each window that has it, the latest window first."""
    last = window.starts(times)
    steps = np.arange(window.windows_max)
    starts = (last[:, None] - steps * window.slide_ms).ravel()
    place = np.repeat(np.arange(len(times)), len(steps))
    is_in = starts + window.size_ms > times[place]
    starts = starts[is_in]
    return NewSpans(starts, starts + window.size_ms, place[is_in])


def _cumulative(window: Cumulative, times: Int64s) -> NewSpans:
    """Each row once for each window that has it, the one that ends first before the others."""
    check_event_time(times, window.size_ms, window.size_ms + window.offset_ms)
    into = np.mod(times - window.offset_ms, window.size_ms)
    begins, step = times - into, into // window.step_ms
    counts = window.size_ms // window.step_ms - step
    place = np.repeat(np.arange(len(times)), counts)
    further = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = begins[place]
    return NewSpans(starts, starts + (step[place] + further + 1) * window.step_ms, place)


def _sessions(window: Session, uid: str) -> SpansOf:
    if window.gap is None:
        gap_ms = window.gap_ms

        def fixed(records: Records) -> NewSpans:
            times = _times(records)
            check_event_time(times, gap_ms, gap_ms)
            return NewSpans(times, times + gap_ms)

        return fixed
    gap = pl.col(window.gap) if isinstance(window.gap, str) else window.gap

    def by_row(records: Records) -> NewSpans:
        times, gaps_ms = _times(records), _gaps_ms(gap, records, uid)
        longest_ms = int(gaps_ms.max())
        check_event_time(times, longest_ms, longest_ms)
        return NewSpans(times, times + gaps_ms)

    return by_row


def _gaps_ms(gap: pl.Expr | OwnGap, records: Records, uid: str) -> Int64s:
    return gap.gaps_ms(records, uid) if isinstance(gap, OwnGap) else _said_ms(gap, records.batch, uid)


def _said_ms(expression: pl.Expr, batch: pa.RecordBatch, uid: str) -> Int64s:
    frame = pl.from_arrow(batch.select(expression.meta.root_names()))
    assert isinstance(frame, pl.DataFrame)
    try:
        gaps = frame.select(expression.alias("gap")).to_series()
    except pl.exceptions.PolarsError as error:
        raise UserFunctionError(f"operator {uid!r}: session({expression}) failed: {error}") from error
    if gaps.dtype == pl.Duration:
        gaps = gaps.dt.total_milliseconds()
    is_wrong = gaps.is_null() | (gaps < 1)
    if is_wrong.any():
        row = is_wrong.arg_max()
        assert row is not None
        raise UserFunctionError(
            f"operator {uid!r}: session({expression}) gives {gaps[row]} for a row: a gap is at least 1 ms"
        )
    return gaps.cast(pl.Int64).to_numpy()
