"""BuiltInRows: the triggers there are, as columns with a place for each window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.operator import OperatorContext
from onceflow.runtime.operators.triggers.built_in import BuiltInTrigger
from onceflow.runtime.operators.triggers.own import TriggerResult
from onceflow.runtime.operators.windows.late_firings import LateFirings
from onceflow.runtime.operators.windows.ranks import is_last
from onceflow.runtime.operators.windows.row_copies import RowCopies
from onceflow.runtime.operators.windows.row_trigger import Acted, Acts, fires_each, next_multiple
from onceflow.runtime.operators.windows.span_rows import Changed, SpanRows, lowest
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s, Mask, Records
from onceflow.runtime.state.number_columns import FlagColumn, NumberColumn
from onceflow.runtime.state.table import RowColumn

NEVER_MS = WATERMARK_MAX_MS
_ANCHOR = pa.schema([("value", pa.float64())])


class BuiltInRows:
    """RowTrigger of a BuiltInTrigger."""

    def __init__(self, uid: str, trigger: BuiltInTrigger, lateness_ms: int) -> None:
        self._uid = uid
        self._trigger = trigger
        self.functions: list[Any] = []
        self._seen = NumberColumn()
        """Rows since it fired by their number."""
        self._early, self._clock = NumberColumn(), NumberColumn()
        """When it fires next, by the watermark before the end and by the clock; NEVER_MS: not yet known."""
        self._ended = FlagColumn()
        """Whether it has fired for its end, and no row has come since."""
        self._anchor = RowCopies(_ANCHOR)
        has_clock = trigger.every_clock_ms is not None or trigger.at_clock_end
        kept: dict[str, tuple[bool, RowColumn]] = {
            "seen": (trigger.rows is not None, self._seen),
            "early_ms": (trigger.every_ms is not None, self._early),
            "clock_ms": (has_clock, self._clock),
            "fired": (trigger.at_end, self._ended),
            "anchor": (trigger.delta is not None, self._anchor),
        }
        self.columns: Mapping[str, RowColumn] = {
            name: column for name, (is_needed, column) in kept.items() if is_needed
        }
        self._late = None if trigger.late is None else LateFirings(trigger.late, lateness_ms)
        """None: a window fires for late rows at once."""
        if self._late is not None:
            self.columns = {**self.columns, **self._late.columns}
        self._has_clock = has_clock or (self._late is not None and self._late.is_by_clock)
        self._earliest_ms = self._earliest_clock_ms = NEVER_MS
        """No window fires earlier, by the watermark and by the clock."""
        self._reached_ms = WATERMARK_MIN_MS
        self._due: Indices | None = None

    def open(self, context: OperatorContext, spans: SpanRows) -> None:
        self._clock_now = context.clock.now_ms
        self._spans = spans

    def restored(self, rows: Indices) -> None:
        self._note(rows)

    def gather(self, changed: Changed, is_grown: Mask) -> None:
        pass

    def merge(self, into: Indices, parts: Indices) -> None:
        if "seen" in self.columns:
            self._seen.add_each(into, self._seen.of(parts))
        for name, times in (("early_ms", self._early), ("clock_ms", self._clock)):
            if name in self.columns:
                times.lower(into, times.of(parts))
        if self._late is not None:
            self._late.merge(into, parts)
        self._never_again(parts)

    def begin(self, rows: Indices, is_new: Mask, is_grown: Mask) -> None:
        new = rows[is_new]
        for name, times in (("early_ms", self._early), ("clock_ms", self._clock)):
            if name in self.columns:
                times.put(new, NEVER_MS)
        if self._late is not None:
            self._late.begin(new)
        if self._trigger.at_end:
            self._ended.put(rows, False)
        if self._trigger.at_clock_end:
            self._clock.put(rows, self._spans.end.of(rows))

    def on_records(self, records: Records, rows: Indices, passed_ms: int | Int64s) -> Acts:
        trigger = self._trigger
        acts = np.zeros(len(rows), np.int8)
        has_passed = np.zeros(len(rows), np.bool_)
        if trigger.at_end:
            has_passed = np.asarray(self._spans.end.of(rows) - 1 <= passed_ms)
        before = ~has_passed
        if trigger.rows is not None:
            acts[before] |= fires_each(self._seen, trigger.rows, rows[before])
        if trigger.delta is not None:
            acts[before] |= self._follow(trigger, records, rows, before)
        if trigger.every_ms is not None:
            self._expect(trigger.every_ms, records, rows, passed_ms)
        if trigger.every_clock_ms is not None:
            now = np.full(len(rows), self._clock_now(), np.int64)
            self._clock.lower(rows, next_multiple(now, trigger.every_clock_ms))
        if has_passed.any():
            acts[has_passed] = self._on_late(rows, passed_ms, has_passed)
        if self._late is not None:  # a session that goes on fires when it ends
            self._late.forget(rows[before])
        self._note(np.unique(rows))
        return acts

    @property
    def holds_rows(self) -> bool:
        return self._due is not None

    @property
    def is_firing(self) -> bool:
        return self._due is not None or self._earliest_ms <= self._reached_ms

    def on_watermark(self, time_ms: int) -> None:
        self._reached_ms = max(time_ms, self._reached_ms)

    def due_of(self, rows: Indices, passed_ms: Int64s) -> Acted | None:
        is_due = self._next_of(rows) <= passed_ms
        return self._fired(rows[is_due], passed_ms[is_due], len(rows)) if is_due.any() else None

    def by_event_time(self, until_ms: int, count: int) -> Acted | None:
        if self._due is None:
            self._due = self._find_due(until_ms)
        if self._due is None:
            return None
        piece, rest = self._due[:count], self._due[count:]
        self._due = rest if len(rest) else None
        # It may have fired since, for a record of its key, or have become a part of another.
        return self._fired(piece[self._next_of(piece) <= self._reached_ms], self._reached_ms, len(piece))

    def by_clock(self, now_ms: int, count: int) -> Acted | None:
        if self._earliest_clock_ms > now_ms or self._earliest_clock_ms == NEVER_MS:
            return None
        rows = self._spans.table.rows()
        times = self.clock_ms(rows)
        due = rows[(times <= now_ms) & (times != NEVER_MS)]
        rows = due[np.argsort(self.clock_ms(due), kind="stable")][:count]
        self._spans.table.note_changed(rows)
        decided = self.clock_ms(rows)
        if "clock_ms" in self.columns:
            self._clock.put(rows, NEVER_MS)
        if self._late is not None:
            self._late.forget(rows)
        self._earliest_clock_ms = lowest(NEVER_MS, self.clock_ms(self._spans.table.rows()))
        return _firing(rows, decided, len(rows)) if len(rows) else None

    def event_ms(self, rows: Indices) -> Int64s:
        return self._next_of(rows)

    def clock_ms(self, rows: Indices) -> Int64s:
        at_ms = self._clock.of(rows) if "clock_ms" in self.columns else np.full(len(rows), NEVER_MS)
        return at_ms if self._late is None else np.minimum(at_ms, self._late.clock_ms(rows))

    @property
    def next_event_ms(self) -> int:
        return self._reached_ms if self._due is not None else self._earliest_ms

    @property
    def next_clock_ms(self) -> int | None:
        return None if self._earliest_clock_ms == NEVER_MS else self._earliest_clock_ms

    def is_blank(self, rows: Indices) -> Mask:
        blank = np.ones(len(rows), np.bool_)
        if "seen" in self.columns:
            blank &= self._seen.of(rows) == 0
        for name, times in (("early_ms", self._early), ("clock_ms", self._clock)):
            if name in self.columns:
                blank &= times.of(rows) == NEVER_MS
        return blank & ~self._anchor.has(rows) if "anchor" in self.columns else blank

    def forget(self, rows: Indices) -> None:
        self._never_again(rows)
        if self._late is not None:
            self._late.forget(rows)

    # --- Records ---

    def _on_late(self, rows: Indices, passed_ms: int | Int64s, has_passed: Mask) -> Acts:
        """What the rows of windows that have ended lead to."""
        late = rows[has_passed]
        self._never_again(late)
        if self._late is None:
            return np.where(is_last(late), TriggerResult.FIRE, TriggerResult.CONTINUE).astype(np.int8)
        passed_ms = passed_ms if isinstance(passed_ms, int) else passed_ms[has_passed]
        return self._late.on_rows(late, passed_ms, self._clock_now())

    def _follow(self, trigger: BuiltInTrigger, records: Records, rows: Indices, asked: Mask) -> Acts:
        """Fire where a value is away from the one that fired last. Each depends on the one before."""
        acts = np.zeros(int(np.count_nonzero(asked)), np.int8)
        values = self._values(records).filter(pa.array(asked)).to_pylist()
        rows = rows[asked]
        distinct, number = np.unique(rows, return_inverse=True)
        anchors = [each if each is None else each["value"] for each in self._anchor.to_list(distinct)]
        for n, (of, value) in enumerate(zip(number.tolist(), values, strict=True)):
            anchor = anchors[of]
            if value is not None and (anchor is None or abs(value - anchor) > trigger.threshold):
                acts[n] = TriggerResult.CONTINUE if anchor is None else TriggerResult.FIRE
                anchors[of] = value
        is_there = np.array([each is not None for each in anchors], np.bool_)
        there = pa.array([each for each in anchors if each is not None], pa.float64())
        self._anchor.put(distinct[is_there], pa.RecordBatch.from_arrays([there], schema=_ANCHOR))
        return acts

    def _values(self, records: Records) -> pa.Array:
        assert self._trigger.delta is not None
        if isinstance(self._trigger.delta, str):
            return records.batch.column(self._trigger.delta).cast(pa.float64())
        frame = pl.from_arrow(records.batch.select(sorted(self._trigger.columns_read)))
        assert isinstance(frame, pl.DataFrame)
        try:
            values = frame.select(self._trigger.delta.cast(pl.Float64).alias("value")).to_series()
        except pl.exceptions.PolarsError as error:
            raise UserFunctionError(
                f"operator {self._uid!r}: delta({self._trigger.delta}) failed: {error}"
            ) from error
        return values.to_arrow()

    def _expect(self, interval_ms: int, records: Records, rows: Indices, passed_ms: int | Int64s) -> None:
        """Fire when event time, which may be further than a row's, has come to the next multiple."""
        assert records.event_time is not None
        not_passed = np.minimum(passed_ms, NEVER_MS - 1) + 1
        times = np.maximum(records.event_time, not_passed)
        self._early.lower(rows, next_multiple(times, interval_ms) - 1)

    # --- Firing ---

    def _next_of(self, rows: Indices) -> Int64s:
        """When each of these windows fires by the watermark."""
        at_ms = np.full(len(rows), NEVER_MS, np.int64)
        if self._trigger.every_ms is not None:
            at_ms = self._early.of(rows)
        if self._trigger.at_end:
            is_open = ~self._ended.of(rows)
            at_ms[is_open] = np.minimum(at_ms, self._spans.end.of(rows) - 1)[is_open]
        if self._late is not None:
            at_ms = np.minimum(at_ms, self._late.event_ms(rows, self._spans.end.of(rows)))
        return at_ms

    def _find_due(self, until_ms: int) -> Indices | None:
        if self._earliest_ms > until_ms or self._earliest_ms == NEVER_MS:
            return None
        rows = self._spans.table.rows()
        at_ms = self._next_of(rows)
        is_due = (at_ms <= until_ms) & (at_ms != NEVER_MS)
        self._earliest_ms = lowest(NEVER_MS, at_ms[~is_due])
        due = rows[is_due]
        return due[np.argsort(at_ms[is_due], kind="stable")] if len(due) else None

    def _fired(self, rows: Indices, passed_ms: int | Int64s, looked: int) -> Acted:
        at_ms = self._next_of(rows)
        self._spans.table.note_changed(rows)
        if self._trigger.every_ms is not None:
            self._early.put(rows, NEVER_MS)
        if self._trigger.at_end:
            self._ended.put(rows, self._spans.end.of(rows) - 1 <= passed_ms)
            if self._late is not None:
                self._late.forget(rows)
            self._note(rows)
        is_set = at_ms != NEVER_MS
        return _firing(rows[is_set], at_ms[is_set], looked)

    def _never_again(self, rows: Indices) -> None:
        """Let these windows fire no more until another row comes."""
        for name, times in (("early_ms", self._early), ("clock_ms", self._clock)):
            if name in self.columns:
                times.put(rows, NEVER_MS)
        if self._trigger.at_end:
            self._ended.put(rows, True)

    def _note(self, rows: Indices) -> None:
        """Know when the first of these fires."""
        self._earliest_ms = lowest(self._earliest_ms, self._next_of(rows))
        if self._has_clock:
            self._earliest_clock_ms = lowest(self._earliest_clock_ms, self.clock_ms(rows))


def _firing(rows: Indices, times: Int64s, looked: int) -> Acted:
    return Acted(rows, np.full(len(rows), TriggerResult.FIRE, np.int8), times, looked)
