"""OwnGap: a session's gap by a function of the user's, called with each record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError, UserFunctionError
from onceflow.runtime.records import Int64s, Records
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import (
    function_name,
    read_records,
    shown_record,
    user_function_error,
)

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class OwnGap:
    """`fn(record)` gives the gap behind this record: an int in ms, a timedelta or a duration as text."""

    fn: Callable[[Any], Any]
    reader: RecordReader | None = None
    """What makes the records; None until the stream is known."""

    @property
    def columns_read(self) -> frozenset[str]:
        """The columns of the records."""
        assert self.reader is not None, "the stream's window() gave it"
        return frozenset(self.reader.columns)

    def __str__(self) -> str:
        return function_name(self.fn)

    def gaps_ms(self, records: Records, uid: str) -> Int64s:
        """The gap of each row. Raises UserFunctionError if the function fails or gives what is no gap."""
        assert self.reader is not None, "the stream's window() gave it"
        typed = read_records(uid, self.reader, records)
        gaps = np.empty(len(typed), np.int64)
        for row, record in enumerate(typed):
            try:
                gap = self.fn(record)
            except Exception as error:
                raise user_function_error(uid, self.fn, error, records, row, record) from error
            try:
                gap_ms = gap // _MILLISECOND if isinstance(gap, timedelta) else duration_ms(gap, "gap")
                gaps[row] = gap_ms
            except (OptionError, OverflowError):
                gap_ms = 0
            if gap_ms < 1:
                place = shown_record(records, row, record)
                raise UserFunctionError(
                    f"operator {uid!r}: session({self}) gives {gap!r} for {place}: "
                    'return at least 1 ms, as an int, a timedelta or text like "30 min"'
                )
        return gaps
