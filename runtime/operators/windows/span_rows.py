"""SpanRows: the table of windows whose bounds can change, and which of them the rows of a batch change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.own_gaps import OwnGap
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.operator import OperatorContext, Output
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.operators.windows.new_spans import NewSpans, SpanWindow, spans_of
from onceflow.runtime.operators.windows.spans import Grouped, join_equal, join_same, merge_touching
from onceflow.runtime.operators.windows.spans_away import SpanOwner, SpansAway
from onceflow.runtime.operators.windows.window_operator import LATE
from onceflow.runtime.records import WATERMARK_MAX_MS, Indices, Int64s, Mask, Records
from onceflow.runtime.state.number_columns import NumberColumn
from onceflow.runtime.state.table import NOT_THERE, RowColumn
from onceflow.runtime.state.tables import Layout

TABLE = "spans"


@dataclass(frozen=True, slots=True)
class Changed:
    """The windows that a batch changes, and what is in each of them."""

    records: Records
    """The records that count, once for each window in which they do."""
    number: Indices
    """The window of each."""
    keys: Indices
    """The number of each window's key."""
    starts: Int64s
    ends: Int64s
    joined: Indices
    """The rows of the table that become a part of a window, or are it; earliest start first."""
    into: Indices
    """The window of each."""


class SpanRows:
    """A row for each window: a span of time of one key. A batch's rows arrive together: their windows, those
    that are there and those that they make are joined, and it is then judged for each window whether it is
    late, that is whether event time has reached its end and the lateness allowed. So a row that joins a
    session which goes on is never late."""

    def __init__(
        self,
        uid: str,
        layout: tuple[Sequence[str], pa.Schema],
        window: SpanWindow,
        columns: Mapping[str, RowColumn],
        lateness_ms: int,
        late: bool,
    ) -> None:
        """`layout`: key columns and the schema of what comes. `columns`: beside the bounds. `late`: whether
        late rows go out on their tag."""
        self.start, self.end = NumberColumn(), NumberColumn()
        bounds = {"window_start": self.start, "window_end": self.end}
        self.away = SpansAway(Layout(*layout, {**bounds, **columns}))
        self.table = self.away.table
        self._uid = uid
        self._spans_of = spans_of(window, uid)
        self._group = merge_touching if isinstance(window, Session) else join_equal
        self._own: object = None
        if isinstance(window, WindowAssigner):
            self._own, self._group = window, join_same
        elif isinstance(window, Session) and isinstance(window.gap, OwnGap):
            self._own = window.gap.fn
        self._lateness_ms = lateness_ms
        self._late = late

    def open(self, context: OperatorContext, out: Output, owner: SpanOwner) -> None:
        self._context = context
        self._out = out
        if self._own is not None:
            context.open_function(self._own)
        self.lateness = Lateness(context.max_parallelism, context.key_groups)
        self.away.open(context, owner, self.lateness)

    def change(self, records: Records) -> Changed | None:
        """What these records change, at least one; None: nothing, all of them are late. Late ones are counted
        and sent on."""
        new = self._spans_of(records)
        if not len(new.starts):
            return None
        by_row = self.away.find_keys(records)
        keys = by_row if new.place is None else by_row[new.place]
        there = self._open_rows(by_row)
        windows = self._group(
            np.append(keys, self.table.key_numbers(there)),
            np.append(new.starts, self.start.of(there)),
            np.append(new.ends, self.end.of(there)),
        )
        of_new, of_there = windows.number[: len(keys)], windows.number[len(keys) :]
        records, of_new = self._without_late(records, new, of_new, self.is_open(windows.key, windows.end))
        return self._changed(records, of_new, there, of_there, windows) if len(records) else None

    def join(self, changed: Changed, merge: Callable[[Indices, Indices], None]) -> tuple[Indices, Mask]:
        """One row for each window, with its bounds and what is in all that it is joined of; and which of them
        are new. `merge(into, parts)` is called for rows that become a part of another and are then gone."""
        rows = np.full(len(changed.keys), NOT_THERE, np.int64)
        rows[changed.into[::-1]] = changed.joined[::-1]  # the first of each
        is_part = rows[changed.into] != changed.joined
        parts = changed.joined[is_part]
        if len(parts):
            try:
                merge(rows[changed.into[is_part]], parts)
            except SumOverflow as error:
                raise self.overflow(error) from error
            self.table.remove(parts)
        is_new = rows == NOT_THERE
        rows[is_new] = self.table.add(changed.keys[is_new])
        self.start.put(rows, changed.starts)
        self.end.put(rows, changed.ends)
        return rows, is_new

    def is_open(self, keys: Indices, ends: Int64s) -> Mask:
        """Whether a row still counts in windows of these keys that end then."""
        last_ms = np.minimum(ends - 1, WATERMARK_MAX_MS - self._lateness_ms) + self._lateness_ms
        return np.asarray(last_ms > self.late_until(keys))

    def late_until(self, keys: Indices) -> int | Int64s:
        """How far event time has come for each of these keys, or for all of them."""
        if not self.lateness.has_floors:
            return self.lateness.reached_ms
        return self.lateness.late_until(self.table.key_hashes(keys))

    def overflow(self, error: SumOverflow) -> Fatal:
        """A Fatal that says `for user='u1' in the window [0, 10000)`."""
        row = np.array([error.row])
        [key], [start], [end] = self.table.keys(row).to_pylist(), self.start.of(row), self.end.of(row)
        named = ", ".join(f"{name}={value!r}" for name, value in key.items())
        where = f"operator {self._uid!r}, column {error.column!r}"
        return Fatal(f"{where}: {error} for {named} in the window [{start}, {end})")

    def _open_rows(self, keys: Indices) -> Indices:
        """The rows of these keys' windows in which a row may still count."""
        is_asked = np.zeros(self.table.key_count, np.bool_)
        is_asked[keys] = True
        rows = self.table.rows_of_keys(np.flatnonzero(is_asked))
        return rows[self.is_open(self.table.key_numbers(rows), self.end.of(rows))]

    def _without_late(
        self, records: Records, new: NewSpans, of_new: Indices, is_open: Mask
    ) -> tuple[Records, Indices]:
        """The records, once for each window in which they count, and the windows. A record is late if it
        counts in none: counted, and sent to the tag LATE."""
        counts = is_open[of_new]
        if counts.all():
            return (records if new.place is None else records.take(new.place)), of_new
        place = np.arange(len(records)) if new.place is None else new.place
        on_time = np.ones(len(records), np.bool_)
        on_time[place] = False  # a row that has no window is not late
        on_time[place[counts]] = True
        if not on_time.all():
            self._context.count_late(len(records) - int(np.count_nonzero(on_time)))
            if self._late:
                self._out.emit(records.filter(~on_time), LATE)
        return records.take(place[counts]), of_new[counts]

    def _changed(
        self, records: Records, of_new: Indices, there: Indices, of_there: Indices, windows: Grouped
    ) -> Changed:
        is_changed = np.zeros(len(windows), np.bool_)
        is_changed[of_new] = True
        number = np.cumsum(is_changed) - 1
        is_joined = is_changed[of_there]
        joined, into = there[is_joined], number[of_there[is_joined]]
        by_start = stable_order(self.start.of(joined))
        return Changed(
            records,
            number[of_new],
            windows.key[is_changed],
            windows.start[is_changed],
            windows.end[is_changed],
            joined[by_start],
            into[by_start],
        )


def lowest(earliest: int, times: Int64s) -> int:
    """The lowest of all these times."""
    return min(earliest, int(times.min())) if len(times) else earliest
