"""Messages to columns: field by field for a whole batch of parsed messages.

A column is asked for with an Arrow type, which may be wider than the field's own; nothing narrows, but for a
uint64 that is read as int64, where a number that is too large makes its message bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from keyword import iskeyword
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.protobuf.fields import (
    DURATION,
    TIMESTAMP,
    is_map,
    is_nullable,
    is_wrapper,
    natural_schema,
    scalar_type,
)
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

Get = Callable[[list[Any]], list[Any]]
"""Messages to what is in one of their fields; None: it is not there."""
Build = Callable[[list[Any]], pa.Array]
"""What is in a field of some messages, to a column. None: a null."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS = (-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999."""
_DURATION_S_MAX = 315_576_000_000
_RANGES = {
    pa.int32(): (-(1 << 31), (1 << 31) - 1),
    pa.int64(): (-(1 << 63), (1 << 63) - 1),
    pa.uint32(): (0, (1 << 32) - 1),
    pa.uint64(): (0, (1 << 64) - 1),
}
_ALIKE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary(), pa.float32(): pa.float64()}


class BadMessageError(Exception):
    """A message with a value that has no place in its column; the text is the reason."""


def column_reader(message: Any, target: pa.Field, where: str) -> Callable[[list[Any]], pa.Array]:
    """Reads the field of this name. It raises BadMessageError, OverflowError or ArrowInvalid if a message
    is bad, which one alone does, too. Raises OptionError if there is no such field, or it is of another
    type."""
    field = message.fields_by_name.get(target.name)
    if field is None:
        known = [each.name for each in message.fields]
        raise OptionError(
            f"the message {message.full_name} has no field {where!r}{nearest(target.name, known)}; it has "
            f"{', '.join(known)}"
        )
    get, build = _getter(field), _builder(field, target, where)
    if target.nullable or not is_nullable(field):
        return lambda messages: build(get(messages))

    def required(messages: list[Any]) -> pa.Array:
        values = get(messages)
        if any(value is None for value in values):
            raise BadMessageError(f"the field {where!r} is not there, and is declared without None")
        return build(values)

    return required


def _getter(field: Any) -> Get:
    """Generated source is a third faster than attrgetter. Names of a .proto are names in Python, too, but
    for its keywords."""
    name = field.name
    if is_nullable(field):
        if iskeyword(name):
            return lambda messages: [getattr(m, name) if m.HasField(name) else None for m in messages]
        return eval(f"lambda messages: [m.{name} if m.HasField({name!r}) else None for m in messages]")  # type: ignore[no-any-return]
    if iskeyword(name):
        return lambda messages: list(map(attrgetter(name), messages))
    return eval(f"lambda messages: [m.{name} for m in messages]")  # type: ignore[no-any-return]


def _builder(field: Any, target: pa.Field, where: str) -> Build:
    arrow, is_ = target.type, pa.types
    if is_map(field):
        if not is_.is_map(arrow):
            raise _wrong(where, field, arrow)
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return _map(arrow, _value(key, arrow.key_field, where), _value(value, arrow.item_field, where))
    if field.is_repeated:
        if not (is_.is_list(arrow) or is_.is_large_list(arrow)):
            raise _wrong(where, field, arrow)
        return _list(arrow, _value(field, arrow.value_field, f"{where}[]"))
    return _value(field, target, where)


def _value(field: Any, target: pa.Field, where: str) -> Build:
    """The builder of single values: those of a field, or of one place of a list or a map."""
    arrow, message = target.type, field.message_type
    if message is None:
        return _scalar(field, arrow, where)
    if message.full_name == TIMESTAMP:
        if not pa.types.is_timestamp(arrow) or arrow.tz is None:
            raise _wrong(where, field, arrow)
        return _times(arrow, _timestamp)
    if message.full_name == DURATION:
        if not pa.types.is_duration(arrow):
            raise _wrong(where, field, arrow)
        return _times(arrow, _duration)
    if is_wrapper(message):
        inner = _scalar(message.fields_by_name["value"], arrow, where)
        return lambda values: inner([None if value is None else value.value for value in values])
    if not pa.types.is_struct(arrow) or not arrow.num_fields:
        raise _wrong(where, field, arrow)
    return _struct(message, arrow, where)


def _wrong(where: str, field: Any, arrow: pa.DataType) -> OptionError:
    said = natural_type(field)
    return OptionError(f"Protobuf has no way to read the field {where!r}, which is {said}, as {arrow}")


def natural_type(field: Any) -> str:
    """What a field is, for a sentence."""
    try:
        return str(natural_schema(field.containing_type).field(field.name).type)
    except OptionError:
        return str(field.message_type.full_name)


# --- Single values --------------------------------------------------------------------------------


def _scalar(field: Any, arrow: pa.DataType, where: str) -> Build:
    own = scalar_type(field)
    if field.enum_type is not None and arrow in (pa.string(), pa.large_string()):
        return _enum(field.enum_type, arrow, where)
    if field.enum_type is not None:
        own = pa.int32()
    if not _widens(own, arrow):
        raise _wrong(where, field, arrow)
    if own in (pa.string(), pa.binary()) or pa.types.is_floating(arrow):
        return lambda values: pa.array(values, arrow)

    def numbers(values: list[Any]) -> pa.Array:
        try:
            return pa.array(values, arrow)
        except OverflowError as error:
            raise BadMessageError(f"the field {where!r} holds a number that does not fit {arrow}") from error

    return numbers


def _widens(own: pa.DataType, arrow: pa.DataType) -> bool:
    if own == arrow or _ALIKE.get(own) == arrow:
        return True
    if own not in _RANGES:
        return False
    if arrow == pa.float64():
        return own in (pa.int32(), pa.uint32())
    low, high = _RANGES[own]
    if arrow in _RANGES:
        return (own == pa.uint64() and arrow == pa.int64()) or (
            _RANGES[arrow][0] <= low and high <= _RANGES[arrow][1]
        )
    return False


def _enum(of: Any, arrow: pa.DataType, where: str) -> Build:
    names = {number: value.name for number, value in of.values_by_number.items()}

    def texts(values: list[Any]) -> pa.Array:
        try:
            return pa.array([None if value is None else names[value] for value in values], arrow)
        except KeyError as error:
            raise BadMessageError(
                f"the field {where!r} is {error}, which is not a value of the enum {of.full_name}"
            ) from error

    return texts


def _times(arrow: pa.DataType, of: Callable[[Any, int], int]) -> Build:
    per_second = _PER_SECOND[arrow.unit]
    return lambda values: pa.array(
        [None if value is None else of(value, per_second) for value in values], pa.int64()
    ).cast(arrow)


def _timestamp(value: Any, per_second: int) -> int:
    seconds, nanos = value.seconds, value.nanos
    if not (_SECONDS[0] <= seconds <= _SECONDS[1] and 0 <= nanos < 1_000_000_000):
        raise BadMessageError(f"a Timestamp of {seconds} s and {nanos} ns is not in the years 1 to 9999")
    return int(seconds * per_second + nanos * per_second // 1_000_000_000)


def _duration(value: Any, per_second: int) -> int:
    seconds, nanos = value.seconds, value.nanos
    if abs(seconds) > _DURATION_S_MAX or abs(nanos) > 999_999_999 or seconds * nanos < 0:
        raise BadMessageError(f"a Duration of {seconds} s and {nanos} ns is none")
    sign = -1 if seconds < 0 or nanos < 0 else 1
    return int(seconds * per_second + sign * (abs(nanos) * per_second // 1_000_000_000))


# --- Values that hold values ----------------------------------------------------------------------


def _struct(message: Any, arrow: pa.DataType, where: str) -> Build:
    fields = list(arrow)
    readers = [column_reader(message, field, f"{where}.{field.name}") for field in fields]

    def structs(values: list[Any]) -> pa.Array:
        is_null = np.array([value is None for value in values], np.bool_)
        if not is_null.any():
            return pa.StructArray.from_arrays([read(values) for read in readers], fields=fields)
        there = [value for value in values if value is not None]
        place = np.cumsum(~is_null) - 1
        columns = [read(there).take(pa.array(place, pa.int64(), mask=is_null)) for read in readers]
        # A null's children are nulls, also in columns that are declared without: nobody looks below a null.
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(is_null))

    return structs


def _list(arrow: pa.DataType, build: Build) -> Build:
    kind, width = (
        (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(arrow) else (pa.ListArray, pa.int32())
    )

    def lists(values: list[Any]) -> pa.Array:
        items = build(list(chain.from_iterable(values)))
        return kind.from_arrays(pa.array(_offsets(values), width), items, type=arrow)

    return lists


def _map(arrow: pa.DataType, key: Build, value: Build) -> Build:
    """Entries are in the order of their keys, since messages have them in none."""

    def maps(values: list[Any]) -> pa.Array:
        pairs = [sorted(each.items(), key=_first) for each in values]
        keys = key([k for entries in pairs for k, _ in entries])
        items = value([v for entries in pairs for _, v in entries])
        return pa.MapArray.from_arrays(pa.array(_offsets(pairs), pa.int32()), keys, items, type=arrow)

    return maps


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _offsets(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return offsets
