"""SlidingOperator: sliding windows in memory, or with a place for keys that have no room there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.keyed_pane_operator import KeyedPaneOperator
from onceflow.runtime.operators.windows.pane_operator import PaneOperator
from onceflow.runtime.records import Records
from onceflow.runtime.state.asked_keys import AskedKeys


class SlidingOperator:
    """PaneOperator where all is in memory and snapshots are whole, which is the faster one; else
    KeyedPaneOperator. Each can restore what the other has written."""

    def __init__(
        self, in_memory: Callable[[], PaneOperator], by_key: Callable[[], KeyedPaneOperator]
    ) -> None:
        self._in_memory = in_memory
        self._by_key = by_key

    def open(self, context: OperatorContext, out: Output) -> None:
        is_plain = context.state.is_unlimited and not context.state.snapshots.are_incremental
        self._of: PaneOperator | KeyedPaneOperator = self._in_memory() if is_plain else self._by_key()
        self._of.open(context, out)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._of.restore(states)

    def on_records(self, records: Records) -> None:
        self._of.on_records(records)

    def on_watermark(self, time_ms: int) -> None:
        self._of.on_watermark(time_ms)

    def fire(self, rows_max: int) -> int:
        return self._of.fire(rows_max)

    def snapshot(self) -> FrozenState:
        return self._of.snapshot()

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._of.peek(asked)

    def close(self) -> None:
        self._of.close()
