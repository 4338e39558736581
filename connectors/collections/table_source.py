"""TableSource: the rows of a table in memory, which travels to the slots with the program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from onceflow.connectors.collections.fixed_splits import FixedSplits
from onceflow.connectors.collections.python_rows import fingerprint
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError

SPLIT = "rows"


@dataclass(frozen=True, eq=False)
class TableSource:
    """A Source and a ProjectableSource. One split, so its rows come in their order.

    The position is the next row, and a fingerprint of the row before it: rows that were changed in the
    program since the checkpoint are told, and not read over.
    """

    table: pa.Table
    record_type: type | None = None
    columns: frozenset[str] | None = None
    """The columns that are read; None: all."""
    is_bounded: bool = True

    @property
    def can_pause(self) -> bool:
        """See PausableSource."""
        return True

    @property
    def schema(self) -> pa.Schema:
        wanted = self.columns
        return pa.schema([f for f in self.table.schema if wanted is None or f.name in wanted])

    def project(self, columns: frozenset[str]) -> TableSource:
        return replace(self, columns=columns)

    def position(self, next_row: int) -> SplitState:
        """The state of the split when so many rows were read."""
        last = fingerprint(self.table, next_row - 1) if next_row else ""
        return SplitState(SPLIT, {"next_row": next_row, "last": last})

    def open_enumerator(self, job: str, clock: Clock) -> FixedSplits:
        return FixedSplits([self.position(0)], self.check)

    def open_reader(self, context: ReaderContext) -> TableReader:
        return TableReader(self, context)

    def check(self, splits: Sequence[SplitState]) -> None:
        """Raises DataLossError for a position that does not fit the table as it is now."""
        for split in splits:
            next_row = split.position["next_row"]
            if next_row > len(self.table):
                raise DataLossError(
                    f"{next_row} records of the program were read before the restart, and now it has "
                    f"{len(self.table)}: put them back, or start anew with another checkpoint folder"
                )
            if dict(self.position(next_row).position) != dict(split.position):
                raise DataLossError(
                    f"record {next_row} of the program is not the one that was read before the restart: put "
                    "it back, or start anew with another checkpoint folder"
                )


class TableReader:
    """A SourceReader and a PausableReader."""

    def __init__(self, source: TableSource, context: ReaderContext) -> None:
        self._source = source
        self._table = source.table.select(source.schema.names)
        self._with_origin = context.with_origin
        self._next_row: int | None = None
        """None: the split is another subtask's."""
        self._is_paused = self._is_finished = False

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._source.check(splits)  # the driver checks those only that were not read to their end
        for split in splits:
            self._next_row = split.position["next_row"]

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        if self._next_row is None or self._is_finished or self._is_paused:
            return None
        first = self._next_row
        # A slice may lie in several chunks of the table: the first is enough for now. No rows are no chunk.
        batches = self._table.slice(first, records_max).to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], self._source.schema)
        count = batch.num_rows
        self._next_row = next_row = first + count
        self._is_finished = next_row >= len(self._table)
        offset = np.arange(first, first + count, dtype=np.int64) if self._with_origin else None
        finished: frozenset[str] = frozenset({SPLIT}) if self._is_finished else frozenset()
        return Fetch(batch, np.zeros(count, np.uint16), (SPLIT,), offset, finished=finished)

    def snapshot(self) -> Sequence[SplitState]:
        return [] if self._next_row is None else [self._source.position(self._next_row)]

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        self._is_paused = self._is_paused or SPLIT in split_ids

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        self._is_paused = self._is_paused and SPLIT not in split_ids

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """Nobody monitors a program's own records."""

    def close(self) -> None:
        """Nothing is open."""
