"""OperatorListState, UnionListState: what a function object without a key remembers for its subtask.

Declared in the class with a name and a type, so that a savepoint can be read without the code:

    class Deduplicate:
        seen = OperatorListState("seen", str)

A subtask has a list of its own. At a restart with another number of slots the elements of all lists are dealt
out evenly, or with UnionListState each subtask gets all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.state.description import StatePart, type_text
from onceflow.runtime.state.evolution.readers import Reader
from onceflow.runtime.state.kept_objects import CodecName, accepting, objects_of
from onceflow.runtime.state.object_codecs import decoded, encoded
from onceflow.runtime.state.row_values import ListCodec
from onceflow.runtime.state.state_names import check_state_name, checked_former_names

V = TypeVar("V")


class OperatorList(Generic[V]):
    """What the two kinds have in common."""

    kind = ""
    """What a manifest calls it."""
    is_kept_for_function = True
    """A function object that has such an attribute has a life: see functions/lives.py."""

    def __init__(
        self,
        name: str,
        value_type: type[V],
        codec: CodecName = "columns",
        former_names: Iterable[str] = (),
    ) -> None:
        check_state_name(name)
        self.former_names = checked_former_names(name, former_names)
        self.name = name
        self._objects = objects_of(name, value_type, codec)
        self._columns = _columns(name, value_type) if self._objects is None else ListCodec(name, bytes)
        self._accept = accepting(name, value_type, self._objects)
        self._values: list[V] | None = None

    def get(self) -> list[V]:
        """A copy of this subtask's list; empty if there is none."""
        return list(self._here())

    def add(self, value: V) -> None:
        """Append to this subtask's list."""
        self._here().append(self._accept(value))

    def update(self, values: Iterable[V]) -> None:
        """Put this list in the place of this subtask's."""
        accepted = [self._accept(value) for value in values]
        self._here()[:] = accepted

    def clear(self) -> None:
        """Forget this subtask's list."""
        self._here().clear()

    def __len__(self) -> int:
        return len(self._here())

    def __bool__(self) -> bool:
        return True  # a handle, not a container: `if self.seen:` would be a trap

    # --- For the operator ---

    def bind(self) -> Self:
        """A fresh list of the same declaration."""
        fresh = copy.copy(self)
        fresh._values = []
        return fresh

    @property
    def part(self) -> StatePart:
        """What it is, for the manifest."""
        kept = type_text(self._columns.field.type)
        if self._objects is None:
            return StatePart(self.name, self.kind, kept, is_nullable=True)
        title, codec = self._objects.title, self._objects.name
        return StatePart(self.name, self.kind, kept, function=title, is_nullable=True, codec=codec)

    @property
    def reader(self) -> Reader:
        """The type under which it is read."""
        return Reader(("state", self.name), self._columns.reads, self.former_names)

    def frozen(self) -> pa.Array:
        """The list as it is now, in one row."""
        values: list[Any] = self._here()
        if self._objects is not None:
            values = encoded(self._objects, self.name, values)
        return self._columns.to_arrow([list(values)])

    def load(self, kept: Sequence[pa.Array | None], subtask: int, parallelism: int) -> None:
        """Take what is this subtask's of what the earlier subtasks left, in their order, one row of each."""
        lists = [[] if column is None else self._read(column) for column in kept]
        self._here()[:] = self.dealt(lists, subtask, parallelism)

    def dealt(self, lists: Sequence[list[V]], subtask: int, parallelism: int) -> list[V]:
        """The elements that are this subtask's."""
        raise NotImplementedError

    def _read(self, column: pa.Array) -> list[V]:
        values: list[Any] = self._columns.from_arrow(column)[0] or []
        return values if self._objects is None else decoded(self._objects, self.name, values)

    def _here(self) -> list[V]:
        if self._values is None:
            raise UserFunctionError(
                f"state {self.name!r} is there only inside a running job, in an object that is given to map, "
                "flat_map, filter, map_batches, or a CoMap or CoFlatMap: keep what has a key in a ListState"
            )
        return self._values


@explained
class OperatorListState(OperatorList[V]):
    """A list for each subtask of a function without a key: `seen = OperatorListState("seen", str)`.

    With another number of slots the elements of all subtasks are dealt out evenly, each to exactly one; with
    the same number each subtask gets its own. `codec`: "columns" keeps what has a type as records have;
    "msgspec" keeps any dataclass or type that msgspec takes, as bytes; "pickle" any object of the class.
    """

    kind = "split list"

    def dealt(self, lists: Sequence[list[V]], subtask: int, parallelism: int) -> list[V]:
        if len(lists) == parallelism:
            return lists[subtask]
        together = [value for values in lists for value in values]
        count = len(together)
        return together[count * subtask // parallelism : count * (subtask + 1) // parallelism]


@explained
class UnionListState(OperatorList[V]):
    """A list for each subtask of a function without a key, of which each subtask gets all elements of all
    subtasks at a restart: `offsets = UnionListState("offsets", Offset)`.

    A subtask that keeps what it got multiplies it with each restart: keep what is its own, by update().
    `codec`: see OperatorListState.
    """

    kind = "union list"

    def dealt(self, lists: Sequence[list[V]], subtask: int, parallelism: int) -> list[V]:
        return [value for values in lists for value in values]


def _columns(name: str, value_type: Any) -> ListCodec:
    try:
        return ListCodec(name, value_type)
    except GraphError as error:
        raise GraphError(f'{error}; or keep it as bytes: codec="msgspec", or codec="pickle"') from error
