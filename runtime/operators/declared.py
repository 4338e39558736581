"""What a class of the user's declares as attributes and types: states, side outputs, records in and out."""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.operator_lists import OperatorList
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record

T = TypeVar("T")


@explained
class SideOutput(Generic[T]):
    """A second output of a KeyedProcess, declared in the class: `hot = SideOutput("hot", Fire)`.

    `ctx.emit(self.hot, Fire(...))` sends a record there; `stream.side_output("hot")` is its stream.
    """

    def __init__(self, name: str, record_type: type[T]) -> None:
        if not name:
            raise GraphError("a side output needs a name")
        self.name = name
        """What `stream.side_output()` calls it."""
        self.record_type = record_type
        """The type of its records."""
        self.writer = RecordWriter.of(describe_record(record_type))
        self.schema: pa.Schema = self.writer.schema


class StandIn(ABC):
    """An object of ours that is called in the place of one of the user's, which declares what it needs."""

    user: Any

    @property
    @abstractmethod
    def declared(self) -> Mapping[str, Any]:
        """What counts as declared in its class, by attribute."""


def class_name(function: object) -> str:
    """The name of the user's class."""
    return type(function.user if isinstance(function, StandIn) else function).__name__


def declared_types(function: Any, base: type) -> list[Any]:
    """The types that a class declares for this generic base, as in `class Alert(KeyedProcess[str, Reading,
    Fire])`; None where it says nothing, empty if it says nothing at all."""
    for owner in type(function).__mro__:
        for declared in getattr(owner, "__orig_bases__", ()):
            if typing.get_origin(declared) is base:
                return [None if isinstance(a, TypeVar) else a for a in typing.get_args(declared)]
    return []


def declared_states(function: object, uid: str) -> dict[str, State]:
    """The states declared in the class, by attribute. Raises GraphError if two have the same name."""
    found = {name: value for name, value in _attributes(function).items() if isinstance(value, State)}
    _check_names(uid, "state", [state.name for state in found.values()])
    return found


def declared_lists(function: object, uid: str) -> dict[str, OperatorList[Any]]:
    """The states without a key that are declared in the class, by attribute. Raises GraphError if two have
    the same name."""
    found = {name: value for name, value in _attributes(function).items() if isinstance(value, OperatorList)}
    _check_names(uid, "state", [state.name for state in found.values()])
    return found


def check_states(function: object, uid: str, has_event_time: bool) -> None:
    """Raises GraphError for states that an operator by key, on a stream with or without event time, can't
    have."""
    for each in declared_lists(function, uid).values():
        raise GraphError(
            f"operator {uid!r}: state {each.name!r} of {class_name(function)} is one without a key, and "
            "the class has keys: use a ListState, or keep it in a map or flat_map"
        )
    for state in declared_states(function, uid).values():
        if state.ttl is not None and not state.ttl.is_by_clock and not has_event_time:
            raise GraphError(
                f"operator {uid!r}: the ttl of state {state.name!r} counts event time, which the stream does "
                'not have: pass watermarks= to the source, or ttl_time="processing" to the state'
            )


def check_lasting(function: object, uid: str) -> None:
    """Raises GraphError for states with a time to live or former names, in a class whose states have an end
    of their own."""
    for state in declared_states(function, uid).values():
        given = "ttl" if state.ttl is not None else "former_names" if state.former_names else ""
        if given:
            raise GraphError(
                f"operator {uid!r}: state {state.name!r} of {class_name(function)} has {given}, but what "
                f"a trigger remembers goes with its window: leave {given}= out"
            )


def declared_sides(function: object, uid: str) -> dict[str, SideOutput[Any]]:
    """The side outputs declared in the class, by name."""
    found = [value for value in _attributes(function).values() if isinstance(value, SideOutput)]
    _check_names(uid, "side output", [side.name for side in found])
    return {side.name: side for side in found}


def _attributes(function: object) -> dict[str, Any]:
    if isinstance(function, StandIn):
        return dict(function.declared)
    attributes: dict[str, Any] = {}
    for owner in reversed(type(function).__mro__):
        attributes |= vars(owner)
    return attributes


def _check_names(uid: str, what: str, names: list[str]) -> None:
    for name in names:
        if not name or names.count(name) > 1:
            raise GraphError(
                f"operator {uid!r}: two {what}s are called {name!r}" if name else f"a {what} has no name"
            )
