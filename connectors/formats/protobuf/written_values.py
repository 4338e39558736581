"""How single values are put into messages: numbers, text, enums, times."""

from __future__ import annotations

from collections.abc import Callable
from keyword import iskeyword
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.protobuf.fields import TIMESTAMP, scalar_type
from onceflow.connectors.formats.protobuf.read import natural_type
from onceflow.runtime.errors import GraphError

Write = Callable[[list[Any], pa.Array], None]
"""Sets a field of messages, one for each value. Raises UnfitError."""

UNFIT = (ValueError, TypeError, OverflowError)
"""What a message raises for a value that its field does not hold."""
_TEXT = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS = (-62_135_596_800, 253_402_300_799)
_DURATION_S_MAX = 315_576_000_000


class UnfitError(Exception):
    """A value that can't be written: its place in the array that was given, and the sentence's end."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row


def wrong(where: str, field: Any, arrow: pa.DataType) -> GraphError:
    return GraphError(
        f"column {where!r} is {arrow}, which can't be written as the Protobuf field {field.full_name}, which "
        f"is {natural_type(field)}: cast it"
    )


Assign = Callable[[list[Any], list[Any]], None]
"""Sets a field of messages to values, one for each."""


def assign(name: str) -> Assign:
    """Sets a scalar. The loop is generated: it takes half the time of one that calls setattr."""
    return _loop(f"m.{name} = v", name)


def assign_wrapped(name: str) -> Assign:
    """Sets the value of a wrapper."""
    return _loop(f"t = m.{name}; t.SetInParent(); t.value = v", name)


def assign_time(name: str) -> Assign:
    """Sets a Timestamp or a Duration to its seconds and nanoseconds."""
    return _loop(f"t = m.{name}; t.SetInParent(); t.seconds, t.nanos = v", name)


def assign_own_time(messages: list[Any], values: list[Any]) -> None:
    """Sets messages that are Timestamps or Durations themselves."""
    for message, pair in zip(messages, values, strict=True):
        message.seconds, message.nanos = pair


def _loop(statement: str, name: str) -> Assign:
    """`name` is a name of a .proto file, and so one of Python, but for its keywords."""
    if iskeyword(name):
        statement = statement.replace(f"m.{name} = v", f"setattr(m, {name!r}, v)")
        statement = statement.replace(f"m.{name};", f"getattr(m, {name!r});")
    made: dict[str, Assign] = {}
    exec(f"def run(messages, values):\n for m, v in zip(messages, values): {statement}", made)
    return made["run"]


def each(assign: Assign, values_of: Callable[[pa.Array], list[Any]]) -> Write:
    """A writer of what `values_of` makes of a column."""

    def write(messages: list[Any], array: pa.Array) -> None:
        values = values_of(array)
        try:
            assign(messages, values)
        except UNFIT:
            for row, (message, value) in enumerate(zip(messages, values, strict=True)):
                try:
                    assign([message], [value])
                except UNFIT as error:
                    raise UnfitError(row, f"{value!r} does not fit: {error}") from error
            raise

    return write


def scalars(field: Any, arrow: pa.DataType, where: str) -> Callable[[pa.Array], list[Any]]:
    """What is set for the values of a column."""
    own, is_ = scalar_type(field), pa.types
    if field.enum_type is not None:
        if not (is_.is_integer(arrow) or arrow in _TEXT):
            raise wrong(where, field, arrow)
        return _enum(field.enum_type, arrow in _TEXT)
    fits = (
        own == arrow
        or (own == pa.string() and arrow in _TEXT)
        or (own == pa.binary() and arrow in _BYTES)
        or (own == pa.float64() and arrow == pa.float32())
        or (is_.is_integer(own) and is_.is_integer(arrow))  # the message looks at the range
    )
    if not fits:
        raise wrong(where, field, arrow)
    return _listed


def _listed(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _enum(of: Any, is_text: bool) -> Callable[[pa.Array], list[Any]]:
    numbers = {value.name if is_text else value.number: value.number for value in of.values}

    def known(array: pa.Array) -> list[Any]:
        values = _listed(array)
        for row, value in enumerate(values):
            if value not in numbers:
                raise UnfitError(row, f"{value!r} is not a value of the enum {of.full_name}")
        return [numbers[value] for value in values]

    return known


def times(field: Any, arrow: pa.DataType, where: str) -> Callable[[pa.Array], list[tuple[int, int]]]:
    """The seconds and nanoseconds of points in time, or of durations."""
    is_time = field.message_type.full_name == TIMESTAMP
    if is_time and (not pa.types.is_timestamp(arrow) or arrow.tz is None):
        raise wrong(where, field, arrow)
    if not is_time and not pa.types.is_duration(arrow):
        raise wrong(where, field, arrow)
    per_second = _PER_SECOND[arrow.unit]
    nanos = 1_000_000_000 // per_second
    low, high = _SECONDS if is_time else (-_DURATION_S_MAX, _DURATION_S_MAX)

    def pairs(array: pa.Array) -> list[tuple[int, int]]:
        values = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
        seconds, rest = np.divmod(values, per_second)
        if not is_time:  # both parts of a duration have one sign
            is_split = (seconds < 0) & (rest > 0)
            seconds, rest = seconds + is_split, rest - per_second * is_split
        is_out = (seconds < low) | (seconds > high)
        if is_out.any():
            row = int(is_out.argmax())
            raise UnfitError(row, f"{values[row]} {arrow.unit} is outside of what the field holds")
        return list(zip(seconds.tolist(), (rest * nanos).tolist(), strict=True))

    return pairs
