"""FunctionSource: what a function of the user's yields. After a restart it is called again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.collections.fixed_splits import FixedSplits
from onceflow.connectors.collections.python_rows import RowType, fingerprint
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError, UserFunctionError
from onceflow.runtime.types.columns_of_records import WrongFieldError
from onceflow.runtime.types.user_functions import function_name, user_error_at

SPLIT = "records"
POLL_MS = 5.0
"""How long a poll goes on asking the function: one that is slow must not hold up barriers."""


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """A Source. One split, read in one slot: the function's records come in its order.

    The position is how many records were read, and a fingerprint of the last one. A function that does not
    yield the same ones again is told by that one, and refused.
    """

    function: Callable[[], Iterable[Any]]
    rows: RowType
    is_bounded: bool = True

    @property
    def can_pause(self) -> bool:
        """See PausableSource."""
        return True

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    @property
    def record_type(self) -> type | None:
        return self.rows.record_type

    @property
    def plan_note(self) -> str:
        name = function_name(self.function)
        return f"exactly once if {name} yields the same records each time: after a restart it is called again"

    def open_enumerator(self, job: str, clock: Clock) -> FixedSplits:
        return FixedSplits([SplitState(SPLIT, {"next_row": 0, "last": ""})])

    def open_reader(self, context: ReaderContext) -> FunctionReader:
        return FunctionReader(self, context)


class FunctionReader:
    """A SourceReader and a PausableReader. The function runs on the slot's own thread."""

    def __init__(self, source: FunctionSource, context: ReaderContext) -> None:
        self._source = source
        self._uid = context.uid
        self._clock = context.clock
        self._with_origin = context.with_origin
        self._split: SplitState | None = None
        """None: the split is another subtask's."""
        self._records: Iterator[Any] | None = None
        """None: the function was not called yet."""
        self._is_paused = self._is_finished = False

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._split = split

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        if self._split is None or self._is_finished or self._is_paused:
            return None
        first = int(self._split.position["next_row"])
        if self._records is None:
            self._records = self._begin(first, self._split.position["last"])
        rows = self._take(self._records, first, records_max)
        batch = self._batch(rows, first)
        if rows:
            last = fingerprint(batch, len(rows) - 1)
            self._split = SplitState(SPLIT, {"next_row": first + len(rows), "last": last})
        count = len(rows)
        offset = np.arange(first, first + count, dtype=np.int64) if self._with_origin else None
        finished: frozenset[str] = frozenset({SPLIT}) if self._is_finished else frozenset()
        return Fetch(batch, np.zeros(count, np.uint16), (SPLIT,), offset, finished=finished)

    def _begin(self, skipped: int, last: str) -> Iterator[Any]:
        """The function's records from the position on."""
        try:
            records = iter(self._source.function())
            again = list(itertools.islice(records, skipped - 1, skipped)) if skipped else []
        except Exception as error:
            raise self._failure(error, 0) from error
        if skipped and not again:
            raise DataLossError(
                f"{self._name} yields less than the {skipped} records that were read before the restart: it "
                "has to yield the same ones each time it is called; or start anew with another checkpoint "
                "folder"
            )
        if skipped and fingerprint(self._batch(again, skipped - 1), 0) != last:
            raise DataLossError(
                f"{self._name} yields {repr(again[0])[:80]} as record {skipped}, which is not the one that "
                "was read before the restart: it has to yield the same ones each time it is called (seed "
                "what is random, leave out the clock); or start anew with another checkpoint folder"
            )
        return records

    def _take(self, records: Iterator[Any], first: int, records_max: int) -> list[Any]:
        rows: list[Any] = []
        over_ms = self._clock.monotonic_ms() + POLL_MS
        try:
            for row in records:
                rows.append(row)
                if len(rows) == records_max or self._clock.monotonic_ms() >= over_ms:
                    break
            else:
                self._is_finished = True
        except Exception as error:
            raise self._failure(error, first + len(rows)) from error
        return rows

    def _batch(self, rows: list[Any], first: int) -> pa.RecordBatch:
        try:
            return self._source.rows.batch(rows)
        except WrongFieldError as error:
            record = f"record {first + error.row + 1}"
            raise UserFunctionError(
                f"{self._name} yielded {record}: {error}", self._name, str(error), record
            ) from error

    def _failure(self, error: Exception, read: int) -> Exception:
        return user_error_at(self._uid, self._source.function, error, f"the record after {read}")

    @property
    def _name(self) -> str:
        return f"source {self._uid!r}: {function_name(self._source.function)}"

    def snapshot(self) -> Sequence[SplitState]:
        return [] if self._split is None else [self._split]

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        self._is_paused = self._is_paused or SPLIT in split_ids

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        self._is_paused = self._is_paused and SPLIT not in split_ids

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """Nobody monitors a function."""

    def close(self) -> None:
        close = getattr(self._records, "close", None)
        if close is not None:
            close()  # a generator's own `finally`
