"""State of a function object without a key: its lists, and what it may define to be asked about them.

In a snapshot it is the table `lists` with one row for each subtask: key_group (the first of the subtask's),
subtask, and state (struct: a list for each declared state).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.functions.lives import INITIALIZE, SNAPSHOT, keeps_state, life_of, method_of
from onceflow.runtime.operators.declared import declared_lists
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.stateless import Stateless
from onceflow.runtime.state.description import BY_SUBTASK, StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.operator_lists import OperatorList
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.types.user_functions import function_name, user_error_at

TABLE = "lists"


@dataclass(frozen=True, slots=True)
class InitializationContext:
    """Given to `initialize_state(self, ctx)` of a function object, once, behind `open` and before the first
    record; its states have what is this subtask's of the checkpoint."""

    is_restored: bool
    """Whether the job starts from a checkpoint or savepoint that has state of this operator."""
    subtask: int
    parallelism: int


@dataclass(frozen=True, slots=True)
class SnapshotContext:
    """Given to `snapshot_state(self, ctx)` of a function object at each checkpoint: what is in its states
    when the call returns is in the checkpoint."""

    checkpoint_id: int


@dataclass(frozen=True)
class FunctionStateConfig:
    """What a function object keeps, checked when the graph is built."""

    uid: str
    lists: Mapping[str, OperatorList[Any]]
    """The declared states by attribute."""

    @property
    def description(self) -> StateDescription | None:
        if not self.lists:
            return None
        parts = tuple(each.part for each in self.lists.values())
        return StateDescription("function", TABLE, (), parts, distribution=BY_SUBTASK)

    @property
    def readers(self) -> Readers:
        return {each.name: each.reader for each in self.lists.values()}


def function_state(function: Any, uid: str) -> FunctionStateConfig | None:
    """What a function keeps besides what its records are made of; None: nothing. Raises GraphError if two
    states have one name."""
    life = life_of(function)
    if life is None or not keeps_state(life.owner):
        return None
    return FunctionStateConfig(uid, declared_lists(life.owner, uid))


def refuse_function_state(function: Any, uid: str, what: str) -> None:
    """Raises GraphError if a function keeps state where none is kept for it; `what` it is given to."""
    life = life_of(function)
    if life is not None and keeps_state(life.owner):
        raise GraphError(
            f"operator {uid!r}: {function_name(function)} declares state without a key, or {SNAPSHOT}() or "
            f"{INITIALIZE}(), which {what} does not keep: use map, flat_map, filter, map_batches, or a CoMap "
            "or CoFlatMap"
        )


class FunctionState:
    """The state of the function object of one subtask."""

    def __init__(self, config: FunctionStateConfig, function: Any) -> None:
        """`function`: the subtask's own."""
        self._config = config
        life = life_of(function)
        assert life is not None, "it keeps state"
        self._owner = life.owner
        self._lists: dict[str, OperatorList[Any]] = {}
        for attribute, declared in config.lists.items():
            self._lists[declared.name] = bound = declared.bind()
            setattr(self._owner, attribute, bound)
        self._is_restored = False

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def restore(self, states: Sequence[RestoredState]) -> None:
        at = self._context
        kept = [_row_of(state) for state in sorted(states, key=lambda state: state.key_groups.start)]
        for name, each in self._lists.items():
            columns = [None if row is None else _field_of(row, name) for row in kept]
            each.load(columns, at.subtask, at.parallelism)
        self._is_restored = True

    def begin(self) -> None:
        """What was restored is there: the function may look at it."""
        at = self._context
        context = InitializationContext(self._is_restored, at.subtask, at.parallelism)
        self._call(INITIALIZE, context, f"subtask {at.subtask} of {at.parallelism}")

    def snapshot(self, checkpoint_id: int) -> FrozenState | None:
        self._call(SNAPSHOT, SnapshotContext(checkpoint_id), f"checkpoint {checkpoint_id}")
        if not self._lists:
            return None
        at = self._context
        columns = {name: each.frozen() for name, each in self._lists.items()}
        fields = [pa.field(name, column.type) for name, column in columns.items()]
        state = pa.StructArray.from_arrays(list(columns.values()), fields=fields)
        group = pa.array([at.key_groups.start], pa.uint16())
        arrays = {KEY_GROUP_COLUMN: group, "subtask": pa.array([at.subtask], pa.int32()), "state": state}
        schema = pa.schema([pa.field(name, each.type, nullable=False) for name, each in arrays.items()])
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema)
        return FrozenState(at.key_groups, {TABLE: _OneRow(batch)})

    def _call(self, name: str, context: Any, place: str) -> None:
        method: Callable[[Any], Any] | None = method_of(self._owner, name)
        if method is None:
            return
        try:
            method(context)
        except Exception as error:
            raise user_error_at(self._config.uid, method, error, place) from error


class StatefulFunction(Stateless):
    """An operator that calls a function object which keeps state."""

    def __init__(self, transform: Any, config: FunctionStateConfig) -> None:
        """`transform`: a CallsFunction, which says which object it calls."""
        super().__init__(transform)
        self._state = FunctionState(config, transform.function)
        self._checkpoint_id = 0

    def open(self, context: OperatorContext, out: Output) -> None:
        self._state.open(context)
        super().open(context, out)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._state.restore(states)

    def begin(self) -> None:
        self._state.begin()

    def on_barrier(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def snapshot(self) -> FrozenState | None:
        return self._state.snapshot(self._checkpoint_id)


@dataclass(frozen=True, slots=True)
class _OneRow:
    """FrozenRows that are in columns already."""

    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        return self.batch.slice(first, end - first)


def _row_of(state: RestoredState) -> pa.StructArray | None:
    for batch in state.batches(TABLE):
        return batch.column("state")
    return None


def _field_of(row: pa.StructArray, name: str) -> pa.Array | None:
    """None: the state is new since then."""
    return row.field(name) if row.type.get_field_index(name) >= 0 else None
