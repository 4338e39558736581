"""CoProcess: the user's code for two streams without a key, and the operator that calls it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from onceflow.runtime.operators.processing.keyed_process import Ctx
from onceflow.runtime.operators.processing.keyless_process import KeylessConfig, KeylessOperator
from onceflow.runtime.records import Records
from onceflow.runtime.types.records_of_columns import RecordReader

Left = TypeVar("Left")
Right = TypeVar("Right")
Out = TypeVar("Out")


class CoProcess(Generic[Left, Right, Out]):
    """The user's class for two streams without a key, `a.connect(b).process(...)`: what a Process is for one.

    CoProcess[L, R, O] names the types of left and right records, and records out (None: side outputs only).
    Each subtask has its share of both streams, with no order between the two. One object serves both: what it
    keeps is lost at a restart, unless it is in an OperatorListState or UnionListState. For state by key and
    timers see KeyedCoProcess.
    """

    def process_left(self, record: Left, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called for each record of the left stream, late ones too: see Process.process."""
        raise NotImplementedError

    def process_right(self, record: Right, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called for each record of the right stream."""
        raise NotImplementedError

    def on_watermark(self, watermark: int, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called when event time of both streams has come to `watermark`, one that is idle or has ended left
        out: see Process.on_watermark."""
        return None


class KeylessCoOperator(KeylessOperator):
    """One subtask of a CoProcess: a TwoInputOperator."""

    def __init__(self, config: KeylessConfig, right: RecordReader) -> None:
        """`right`: what makes records of the right stream."""
        super().__init__(config)
        self._right = right

    def on_records(self, records: Records) -> None:
        self._take(records, self._config.reader, self._process.process_left)

    def on_right_records(self, records: Records) -> None:
        self._take(records, self._right, self._process.process_right)
