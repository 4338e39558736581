"""Which windows may be written into a savepoint: those that the job could have made itself by then, and that
can still fire as they would have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UsageError
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.records import Indices, Int64s, Mask, UInt64s
from onceflow.runtime.state.description import Windows


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rows of a table of windows: their keys, by number, and where they begin and end. `ends`: of panes the
    end of the last window that has them."""

    keys: Indices
    starts: Int64s
    ends: Int64s
    in_base: Mask
    """Whether the base has a row of this key and these bounds."""
    batch: pa.RecordBatch
    """The columns of the keys."""

    def first(self, wrong: Mask) -> str:
        """The first of these rows, as `{'user': 'ann'} in [0, 10000)`; empty: there is none."""
        if not (found := np.flatnonzero(wrong)).size:
            return ""
        row = int(found[0])
        key = self.batch.slice(row, 1).to_pylist()[0]
        return f"{key} in [{int(self.starts[row])}, {int(self.ends[row])})"


def ends_of(windows: Windows, table: str, starts: Int64s, ends: Int64s | None) -> Int64s:
    """Where windows end that begin there. `ends`: as the rows have them."""
    if ends is not None:
        return ends
    if table == "panes":
        return Sliding(windows.size_ms, windows.slide_ms, windows.offset_ms).last_ends(starts)
    return starts + windows.size_ms


def check_bounds(windows: Windows, table: str, rows: Bounds, where: str) -> None:
    """Raise UsageError for windows that this kind of windows does not have."""
    size, slide, offset = windows.size_ms, windows.slide_ms, windows.offset_ms
    lengths = rows.ends - rows.starts
    if windows.kind == "session":
        wrong = lengths < max(size, 1)
        rule = f"sessions are {max(size, 1)} ms long at least"
    elif windows.kind == "cumulative":
        wrong = ((rows.starts - offset) % size != 0) | (lengths % slide != 0)
        wrong |= (lengths < slide) | (lengths > size)
        rule = f"windows of {size} ms begin at {offset} ms, and end every {slide} ms"
    elif table == "panes":
        panes = Sliding(size, slide, offset).pane_starts(rows.starts) if len(rows.starts) else rows.starts
        wrong = panes != rows.starts
        rule = f"no window of {size} ms every {slide} ms begins or ends there"
    else:
        wrong = ((rows.starts - offset) % slide != 0) | (lengths != size)
        rule = f"windows of {size} ms begin every {slide} ms, at {offset} ms"
    if shown := rows.first(wrong):
        raise UsageError(f"{where} has a window that the job does not have, {shown}: {rule}: give others")
    if windows.kind == "session" and (shown := rows.first(_touching(rows))):
        raise UsageError(
            f"{where} has a session that touches another one of its key, {shown}: give one in place of both"
        )


def check_open(rows: Bounds, fired: Mask | None, reached_ms: Int64s, where: str) -> None:
    """Raise UsageError for windows that event time has passed: they would fire a second time. `fired`: which
    have fired, and are kept for late rows; `reached_ms`: how far event time is for each row's key."""
    has_passed = rows.ends - 1 <= reached_ms
    if fired is not None:
        if shown := rows.first(fired & ~(rows.in_base & has_passed)):
            raise UsageError(
                f"{where} has a window that has fired, and the base has not, {shown}: give `fired` as false, "
                "or leave the row out"
            )
        has_passed &= ~fired
    if shown := rows.first(has_passed & ~rows.in_base):
        raise UsageError(
            f"{where} has a window that event time has passed, so that it would fire a second time, {shown}: "
            "leave the row out, or take a base of an earlier time"
        )


def reached(metas: Iterable[Mapping[str, Any]], max_parallelism: int, hashes: UInt64s) -> Int64s:
    """How far event time had come in the base for each of these keys."""
    lateness = Lateness(max_parallelism, range(max_parallelism))
    lateness.restore(metas)
    return np.broadcast_to(np.asarray(lateness.late_until(hashes), np.int64), hashes.shape)


def _touching(rows: Bounds) -> Mask:
    """Sessions of a key that overlap or touch are one, which only a row that comes would find out."""
    order = np.lexsort((rows.starts, rows.keys))
    keys, starts, ends = rows.keys[order], rows.starts[order], rows.ends[order]
    wrong = np.zeros(len(order), np.bool_)
    wrong[1:] = (keys[1:] == keys[:-1]) & (starts[1:] <= ends[:-1])
    wrong[1:] &= ~(rows.in_base[order][1:] & rows.in_base[order][:-1])
    by_row: Mask = np.zeros(len(order), np.bool_)
    by_row[order] = wrong
    return by_row
