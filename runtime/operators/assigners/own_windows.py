"""WindowAssigner: the user's own code that says which windows a row is in; and what it says, checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s, Records
from onceflow.runtime.types.user_functions import function_name, user_function_error

Assigned = tuple[Any, Any] | tuple[Any, Any, Any]
"""Starts and ends, one of each for each row; or places of rows, starts and ends."""

Spans = tuple[Int64s, Int64s, Indices | None]
_NAMES = ("starts", "ends")


class WindowAssigner(ABC):
    """Windows of the user's own, for whole batches: `.window(MyAssigner())`.

    One object serves all rows: it must keep nothing in itself, and what it says of a row must depend on this
    row alone, since how rows are cut into batches is chance. It may have `open(self, ctx)` and
    `close(self)`. Rows of a key with the same start and end are in one window; windows do not merge.
    """

    @abstractmethod
    def assign(self, batch: pa.RecordBatch, event_time: Int64s) -> Assigned:
        """The windows of these rows, in ms since the epoch, the end excluded.

        `event_time`: of each row, not to be changed. Returns `(starts, ends)` with a window for each row, in
        order; or `(places, starts, ends)`, where a place is that of a row in the batch, for rows in several
        windows, or in none: such a row counts nowhere, and is not late. Integers in arrays of NumPy, Arrow or
        polars, or lists.
        """

    @property
    def title(self) -> str:
        """What the plan calls these windows."""
        return f"by {function_name(type(self))}"


def own_spans(window: WindowAssigner, uid: str, records: Records) -> Spans:
    """Starts, ends, and places of rows (None: one for each row, in order). Raises UserFunctionError if the
    assigner fails, or gives what are no windows."""
    assert records.event_time is not None, "windows need event time"
    times = records.event_time.view()
    times.flags.writeable = False
    try:
        assigned = window.assign(records.batch, times)
    except Exception as error:
        shown = f"... a batch of {len(records)}"
        raise user_function_error(uid, window.assign, error, None, 0, shown) from error
    where = f"operator {uid!r}: {function_name(type(window))}.assign() gave"
    if not isinstance(assigned, tuple) or len(assigned) not in (2, 3):
        raise UserFunctionError(
            f"{where} a {type(assigned).__name__}: return (starts, ends), or (places, starts, ends) for rows "
            "in several windows or in none"
        )
    starts, ends = (_whole(array, name, where) for array, name in zip(assigned[-2:], _NAMES, strict=True))
    place = _whole(assigned[0], "places", where) if len(assigned) == 3 else None
    _check_lengths(len(records), place, starts, ends, where)
    if len(starts):
        _check_bounds(starts, ends, where)
    if place is not None and len(place):
        _check_places(len(records), place, starts, ends, where)
        in_order = np.argsort(
            place, kind="stable"
        )  # so that of rows of one time the first that came is first
        return starts[in_order], ends[in_order], place[in_order]
    return starts, ends, place


def _whole(array: Any, name: str, where: str) -> Int64s:
    found = np.asarray(array)
    if not found.size:
        found = found.astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        kind = f"of {found.dtype}" if found.ndim == 1 else f"with {found.ndim} dimensions"
        raise UserFunctionError(f"{where} {name} {kind}: give an array of whole numbers, without nulls")
    return found.astype(np.int64)


def _check_lengths(rows: int, place: Indices | None, starts: Int64s, ends: Int64s, where: str) -> None:
    if place is None and len(starts) == len(ends) == rows:
        return
    if place is not None and len(place) == len(starts) == len(ends):
        return
    places = "" if place is None else f"{len(place)} places, "
    wanted = f"one of each for each of {rows} rows" if place is None else "as many of each"
    raise UserFunctionError(f"{where} {places}{len(starts)} starts and {len(ends)} ends: return {wanted}")


def _check_bounds(starts: Int64s, ends: Int64s, where: str) -> None:
    if (wrong := ends <= starts).any():
        at = int(np.argmax(wrong))
        raise UserFunctionError(
            f"{where} a window from {starts[at]} to {ends[at]}: give an end behind the start, both in ms"
        )
    if int(starts.min()) <= WATERMARK_MIN_MS or int(ends.max()) >= WATERMARK_MAX_MS:
        raise UserFunctionError(f"{where} a window at the end of time: give ms since the epoch")


def _check_places(rows: int, place: Indices, starts: Int64s, ends: Int64s, where: str) -> None:
    if int(place.min()) < 0 or int(place.max()) >= rows:
        wrong = int(place.min()) if int(place.min()) < 0 else int(place.max())
        raise UserFunctionError(
            f"{where} place {wrong}, in a batch of {rows} rows: give the places of rows, from 0"
        )
    order = np.lexsort((ends, starts, place))
    same = np.ones(len(order) - 1, np.bool_)
    for numbers in (place, starts, ends):
        same &= np.diff(numbers[order]) == 0
    if same.any():
        at = order[int(np.argmax(same))]
        raise UserFunctionError(
            f"{where} the window from {starts[at]} to {ends[at]} twice for one row, which would count twice: "
            "give each once"
        )
