"""ReducingState and AggregatingState: what a KeyedProcess adds to, kept as one value for each key.

Declared in the class, as the others are (state/handles.py):

    class Spending(KeyedProcess[str, Purchase, Total]):
        total = ReducingState("total", int, operator.add)
        items = AggregatingState("items", MostWanted())

What is kept is a value: a savepoint shows it as one, and a state that was a ValueState of the same type goes
on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Generic, Self, TypeVar

from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction
from onceflow.runtime.operators.aggregation.returned_types import returned_hint
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.state.kept_objects import CodecName
from onceflow.runtime.state.row_values import Cursor
from onceflow.runtime.state.ttl import Refresh, Time

V = TypeVar("V")
In = TypeVar("In")
Acc = TypeVar("Acc")
Out = TypeVar("Out")


class CombinedState(State):
    """What both have in common: one value for each key, in a ValueState of the same name."""

    def __init__(
        self,
        name: str,
        kept_type: Any,
        ttl: str | int | None,
        refresh: Refresh,
        time: Time,
        former_names: Iterable[str],
        codec: CodecName,
    ) -> None:
        self._kept: ValueState[Any] = ValueState(name, kept_type, ttl, refresh, time, former_names, codec)
        super().__init__(name, lambda: self._kept.of_rows.codec, ttl, refresh, time)
        self.former_names, self.objects = self._kept.former_names, self._kept.objects

    def bind(self, cursor: Cursor) -> Self:
        fresh = copy.copy(self)
        fresh._kept = self._kept.bind(cursor)
        fresh.of_rows = fresh._kept.of_rows
        return fresh

    def clear(self) -> None:
        """Forget what was added for the current key."""
        self._kept.clear()


@explained
class ReducingState(CombinedState, Generic[V]):
    """The values that were added for each key, reduced to one: `reduce(one, other)` of what there is and
    what is added. The first value is kept as it is.

    `ttl`, `ttl_refresh`, `ttl_time`, `codec`: as of a ValueState; adding is writing.
    """

    def __init__(
        self,
        name: str,
        value_type: type[V],
        reduce: Callable[[V, V], V],
        ttl: str | int | None = None,
        ttl_refresh: Refresh = "write",
        ttl_time: Time = "event",
        former_names: Iterable[str] = (),
        codec: CodecName = "columns",
    ) -> None:
        if not callable(reduce):
            raise GraphError(
                f"state {name!r}: reduce={reduce!r} can't be called: write a function such as max"
            )
        super().__init__(name, value_type, ttl, ttl_refresh, ttl_time, former_names, codec)
        self._reduce = reduce

    def add(self, value: V) -> None:
        """Reduce what there is and this value to one."""
        kept = self._kept
        before = kept.get()
        kept.set(value if before is None else self._reduce(before, value))

    def get(self) -> V | None:
        """What the values of the current key were reduced to; None if there are none, or none any more."""
        value: V | None = self._kept.get()
        return value


@explained
class AggregatingState(CombinedState, Generic[In, Acc, Out]):
    """The values that were added for each key, in an accumulator of the user's AggregateFunction.

    What is kept is what `create_accumulator` says that it returns; `merge` is never called. `ttl`,
    `ttl_refresh`, `ttl_time`: as of a ValueState; adding is writing. `codec`: as of a ValueState; if left
    out, that of the aggregate.
    """

    def __init__(
        self,
        name: str,
        aggregate: AggregateFunction[In, Acc, Out],
        ttl: str | int | None = None,
        ttl_refresh: Refresh = "write",
        ttl_time: Time = "event",
        former_names: Iterable[str] = (),
        codec: CodecName | None = None,
    ) -> None:
        if not isinstance(aggregate, AggregateFunction):
            raise GraphError(
                f"state {name!r}: {aggregate!r} is no AggregateFunction: write an object of a class that "
                "is one"
            )
        kept_type = returned_hint(aggregate, "create_accumulator", f"state {name!r}")
        codec = aggregate.codec if codec is None else codec
        super().__init__(name, kept_type, ttl, ttl_refresh, ttl_time, former_names, codec)
        self._aggregate = aggregate

    def add(self, value: In) -> None:
        """Put one more value into the accumulator of the current key."""
        kept, aggregate = self._kept, self._aggregate
        accumulator = kept.get()
        kept.set(aggregate.add(value, aggregate.create_accumulator() if accumulator is None else accumulator))

    def get(self) -> Out | None:
        """The result of what was added for the current key; None if there is nothing, or nothing any more."""
        accumulator = self._kept.get()
        return None if accumulator is None else self._aggregate.get_result(accumulator)
