"""Watermarks that are no bound behind the highest event time: what records bring, and the user's own rule.

Both say a watermark for some splits after a fetch; the minimum over splits, idleness and restores are those
of event_time.py. Pure, but for the user's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Fetch, WatermarkGenerator, WatermarkStrategy
from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Int64s
from onceflow.runtime.slot.event_time import in_ms
from onceflow.runtime.types.user_functions import user_error_at


class Rule(Protocol):
    """Says after each fetch how far event time has come in the splits that were read."""

    def watermarks(self, fetch: Fetch, times: Int64s) -> Mapping[str, int]:
        """`times`: the event time of each row. Splits that are not in the result stay where they are."""
        ...

    def forget(self, split_id: str) -> None:
        """The split is not read any more."""
        ...


def rule_of(strategy: WatermarkStrategy, uid: str) -> Rule | None:
    """The rule of a source's strategy; None: it is a bound behind the highest event time."""
    if strategy.generator is not None:
        return Generated(strategy.generator, uid)
    return None if strategy.marker is None else Marked(strategy.marker)


class Marked:
    """The highest watermark that the rows of each split bring in a column."""

    def __init__(self, marker: str) -> None:
        self._marker = marker

    def watermarks(self, fetch: Fetch, times: Int64s) -> Mapping[str, int]:
        column = in_ms(fetch.records.column(self._marker))
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        if not len(rows):
            return {}
        splits = fetch.row_split[rows]
        highest = np.full(len(fetch.splits), WATERMARK_MIN_MS, np.int64)
        np.maximum.at(highest, splits, column.take(pa.array(rows)).to_numpy())
        return {fetch.splits[i]: _bounded(int(highest[i])) for i in np.unique(splits).tolist()}

    def forget(self, split_id: str) -> None:
        pass


class Generated:
    """The user's generators of the splits of one source subtask."""

    def __init__(self, make: Callable[[], WatermarkGenerator], uid: str) -> None:
        self._make = make
        self._uid = uid
        self._of_splits: dict[str, WatermarkGenerator] = {}

    def watermarks(self, fetch: Fetch, times: Int64s) -> Mapping[str, int]:
        """What the generators say after these rows. Raises UserFunctionError if one fails, or says what is no
        time."""
        found = {}
        for index in np.unique(fetch.row_split).tolist():
            split_id = fetch.splits[index]
            said = self._asked(split_id, times[fetch.row_split == index])
            if said is not None:
                found[split_id] = _bounded(said)
        return found

    def forget(self, split_id: str) -> None:
        self._of_splits.pop(split_id, None)

    def _asked(self, split_id: str, times: Int64s) -> int | None:
        called: Callable[..., object] = self._make
        try:
            if split_id not in self._of_splits:
                self._of_splits[split_id] = self._make()
            called = self._of_splits[split_id].on_records
            said = called(times)
        except Exception as error:
            place = f"{len(times)} records of {split_id}"
            raise user_error_at(self._uid, called, error, place) from error
        if said is None:
            return None
        if isinstance(said, bool) or not isinstance(said, int | np.integer):
            name = type(self._of_splits[split_id]).__name__
            raise UserFunctionError(
                f"source {self._uid!r}: {name}.on_records returned {said!r} for {split_id}: "
                "return a time in ms as an int, or None"
            )
        return int(said)


def _bounded(watermark_ms: int) -> int:
    """Never the end of time, which only the end of the input is."""
    return min(max(watermark_ms, WATERMARK_MIN_MS), WATERMARK_MAX_MS - 2)
