"""CoMap and CoFlatMap: one object of the user's for the records of two streams, without keyed state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.operators.function_state import FunctionState, FunctionStateConfig
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.stateless import FlatMapRecords, MapRecords
from onceflow.runtime.records import Records
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.records_of_columns import RecordReader

Left = TypeVar("Left")
Right = TypeVar("Right")
Out = TypeVar("Out")


class CoMap(Generic[Left, Right, Out]):
    """The user's class for `a.connect(b).map(...)`: CoMap[L, R, O], one record out for each record in.

    One object serves both streams of a subtask; what it keeps is lost at a restart, unless it is in an
    OperatorListState or UnionListState. State that belongs to a key: see KeyedCoProcess.
    """

    def map_left(self, record: Left, /) -> Out:
        """Called for each record of the left stream."""
        raise NotImplementedError

    def map_right(self, record: Right, /) -> Out:
        """Called for each record of the right stream."""
        raise NotImplementedError


class CoFlatMap(Generic[Left, Right, Out]):
    """The user's class for `a.connect(b).flat_map(...)`: as CoMap, with any number of records out: the
    methods yield them, or return an iterable or None."""

    def flat_map_left(self, record: Left, /) -> Iterable[Out] | None:
        """Called for each record of the left stream."""
        raise NotImplementedError

    def flat_map_right(self, record: Right, /) -> Iterable[Out] | None:
        """Called for each record of the right stream."""
        raise NotImplementedError


AnyCoFunction = CoMap[Any, Any, Any] | CoFlatMap[Any, Any, Any]


@dataclass(frozen=True)
class CoFunctionConfig:
    """A CoMap or CoFlatMap, checked when the graph is built: what makes its records, and columns of what it
    returns."""

    uid: str
    function: AnyCoFunction
    left: RecordReader
    right: RecordReader
    made: RecordWriter
    state: FunctionStateConfig | None = None
    """What it keeps."""

    def create(self) -> CoFunctionOperator:
        """A fresh operator for one subtask and attempt."""
        return CoFunctionOperator(self)


class CoFunctionOperator:
    """One subtask of a CoMap or CoFlatMap."""

    def __init__(self, config: CoFunctionConfig) -> None:
        uid = config.uid
        self._function = function = own_instance(config.function, uid)
        self._state = None if config.state is None else FunctionState(config.state, function)
        self._checkpoint_id = 0
        self._left: Callable[[Records], Records | None]
        self._right: Callable[[Records], Records | None]
        if isinstance(function, CoMap):
            self._left = MapRecords(uid, function.map_left, config.left, config.made, is_own=True)
            self._right = MapRecords(uid, function.map_right, config.right, config.made, is_own=True)
        else:
            self._left = FlatMapRecords(uid, function.flat_map_left, config.left, config.made, is_own=True)
            self._right = FlatMapRecords(uid, function.flat_map_right, config.right, config.made, is_own=True)

    def open(self, context: OperatorContext, out: Output) -> None:
        self._out = out
        if self._state is not None:
            self._state.open(context)
        context.open_function(self._function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        assert self._state is not None, "it has no state"
        self._state.restore(states)

    def begin(self) -> None:
        if self._state is not None:
            self._state.begin()

    def on_barrier(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def on_records(self, records: Records) -> None:
        self._send(self._left(records))

    def on_right_records(self, records: Records) -> None:
        self._send(self._right(records))

    def on_watermark(self, time_ms: int) -> None:
        pass

    def snapshot(self) -> FrozenState | None:
        return None if self._state is None else self._state.snapshot(self._checkpoint_id)

    def close(self) -> None:
        pass

    def _send(self, records: Records | None) -> None:
        if records is not None:
            self._out.emit(records)
