"""Rows of windows of which some are left out when a window fires, for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.aggregation.accumulator import Arrivals
from onceflow.runtime.operators.aggregation.kept_values import ValueLists
from onceflow.runtime.records import Indices
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name, user_function_error

Row = dict[str, Any]


class Eviction(Protocol):
    """Which rows of windows stay."""

    @property
    def title(self) -> str:
        """A text that is compared with a checkpoint's."""
        ...

    def left(self, windows: list[list[Row]], row_type: pa.DataType) -> list[list[Row]]:
        """What stays of the rows of each window, in their order; each is `{"event_time": ms, "row": struct}`.
        Makes new lists."""
        ...


class EvictedRows(ValueLists):
    """The rows of each window with their event times. What the eviction leaves out of a result is gone."""

    def __init__(self, row_type: pa.DataType, eviction: Eviction) -> None:
        super().__init__(pa.struct([("event_time", pa.int64()), ("row", row_type)]))
        self._row_type = row_type
        self._eviction = eviction

    def update(self, arrivals: Arrivals) -> None:
        assert arrivals.values is not None
        values, times = arrivals.values.to_pylist(), arrivals.event_time.tolist()
        for row, time, value in zip(arrivals.rows.tolist(), times, values, strict=True):
            self._append(row, [{"event_time": time, "row": value}])

    def results(self, rows: Indices) -> pa.Array:
        chosen = rows.tolist()
        left = self._eviction.left([self._lists[row] or [] for row in chosen], self._row_type)
        for row, kept in zip(chosen, left, strict=True):
            self._lists[row] = kept  # a new list: a snapshot may have the old one
        return pa.array([[kept["row"] for kept in rows] for rows in left], pa.list_(self._row_type))


class LastRows:
    """The last so many rows stay."""

    def __init__(self, rows: int, title: str) -> None:
        self._rows, self.title = rows, title

    def left(self, windows: list[list[Row]], row_type: pa.DataType) -> list[list[Row]]:
        return [rows[-self._rows :] for rows in windows]


class LatestRows:
    """Rows stay that happened less than so many ms before the latest."""

    def __init__(self, age_ms: int, title: str) -> None:
        self._age_ms, self.title = age_ms, title

    def left(self, windows: list[list[Row]], row_type: pa.DataType) -> list[list[Row]]:
        return [self._left(rows) for rows in windows]

    def _left(self, rows: list[Row]) -> list[Row]:
        latest = max((row["event_time"] for row in rows), default=0)
        return [row for row in rows if row["event_time"] > latest - self._age_ms]


class NearRows:
    """Rows stay whose value is less than a threshold away from the last one's; nulls are near to all."""

    def __init__(self, column: str, threshold: float, title: str) -> None:
        self._column, self._threshold, self.title = column, threshold, title

    def left(self, windows: list[list[Row]], row_type: pa.DataType) -> list[list[Row]]:
        return [self._left(rows) for rows in windows]

    def _left(self, rows: list[Row]) -> list[Row]:
        values = [row["row"][self._column] for row in rows]
        if not values or values[-1] is None:
            return rows.copy()
        last, threshold = values[-1], self._threshold
        near = [value is None or abs(value - last) < threshold for value in values]
        return [row for row, is_near in zip(rows, near, strict=True) if is_near]


class ChosenRows:
    """Rows stay that a function of the user's keeps."""

    def __init__(
        self,
        uid: str,
        fn: Callable[..., Any],
        keeps: Callable[[list[Any], list[int]], Iterable[bool]],
        reader: RecordReader,
        title: str,
    ) -> None:
        """`fn`: what errors name. `keeps`: is asked with the records of a window and their event times.
        `reader`: makes the records."""
        self._uid, self._fn, self._keeps, self._reader, self.title = uid, fn, keeps, reader, title

    def left(self, windows: list[list[Row]], row_type: pa.DataType) -> list[list[Row]]:
        flat = pa.array([row["row"] for rows in windows for row in rows], row_type)
        records = self._reader.read(pa.RecordBatch.from_struct_array(flat))
        left, start = [], 0
        for rows in windows:
            left.append(self._left(rows, records[start : start + len(rows)]))
            start += len(rows)
        return left

    def _left(self, rows: list[Row], records: Sequence[Any]) -> list[Row]:
        try:
            keeps = list(self._keeps(list(records), [row["event_time"] for row in rows]))
        except Exception as error:
            shown = f"a window of {len(rows)} records"
            raise user_function_error(self._uid, self._fn, error, None, 0, shown) from error
        if len(keeps) != len(rows):
            raise UserFunctionError(
                f"operator {self._uid!r}: {function_name(self._fn)} said of {len(keeps)} records whether "
                f"they stay, and the window has {len(rows)}: give one True or False for each"
            )
        return [row for row, stays in zip(rows, keeps, strict=True) if stays]
