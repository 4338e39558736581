"""Columns to messages: field by field for a whole batch of messages.

What would be read back as something else is refused: null in a field whose absence means zero, an enum's
unknown value, two members of one oneof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.protobuf.fields import DURATION, TIMESTAMP, is_map, is_wrapper
from onceflow.connectors.formats.protobuf.written_values import (
    UNFIT,
    UnfitError,
    Write,
    assign,
    assign_own_time,
    assign_time,
    assign_wrapped,
    each,
    scalars,
    times,
    wrong,
)
from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest

Fill = Callable[[list[Any], list[pa.Array]], None]
"""Sets fields of messages, of which each column has one value for each. Raises UnfitError."""
_NULL_ITEM = "holds a null, for which lists and maps of Protobuf have no place"


def message_writer(message: Any, columns: list[pa.Field], above: str = "") -> Fill:
    """Sets the fields of these columns. Raises GraphError naming a column that has no field of its kind, or a
    field that has to be there and has no column."""
    names = [column.name for column in columns]
    known = message.fields_by_name
    for column in columns:
        if column.name not in known:
            raise GraphError(
                f"the message {message.full_name} has no field {above}{column.name}"
                f"{nearest(column.name, list(known))}: leave the column out, or add the field"
            )
    for field in message.fields:
        if field.is_required and field.name not in names:
            raise GraphError(
                f"the message {message.full_name} requires the field {above}{field.name}, which the rows "
                "don't have"
            )
    writers = [_writer(known[c.name], c, f"{above}{c.name}") for c in columns]
    oneofs = [
        [names.index(f.name) for f in oneof.fields if f.name in names]
        for oneof in message.oneofs
        if len(oneof.fields) > 1
    ]

    def write(messages: list[Any], arrays: list[pa.Array]) -> None:
        for members in oneofs:
            _check_one_of(arrays, members, names)
        for name, array, writer in zip(names, arrays, writers, strict=True):
            try:
                writer(messages, array)
            except UnfitError as error:
                raise UnfitError(error.row, f"{name}: {error}") from error

    return write


def _check_one_of(arrays: list[pa.Array], members: list[int], names: list[str]) -> None:
    if len(members) > 1:
        there = np.sum([np.asarray(arrays[at].is_valid()) for at in members], axis=0)
        if len(there) and there.max() > 1:
            raise UnfitError(
                int(there.argmax()),
                f"{' and '.join(names[at] for at in members)} are of one oneof, and more than one is there",
            )


def _writer(field: Any, column: pa.Field, where: str) -> Write:
    arrow, is_ = column.type, pa.types
    if is_map(field):
        if not is_.is_map(arrow):
            raise wrong(where, field, arrow)
        return _without_nulls(_map(field, arrow, where), _absent_means("an empty map"))
    if field.is_repeated:
        if not (is_.is_list(arrow) or is_.is_large_list(arrow)):
            raise wrong(where, field, arrow)
        return _without_nulls(_list(field, arrow, where), _absent_means("an empty list"))
    write = _single(field, arrow, where)
    if field.is_required:
        return _without_nulls(write, "is null, and the field is required")
    if not field.has_presence:
        return _without_nulls(write, _absent_means(repr(field.default_value)))
    if field.message_type is None and field.has_default_value:
        return _without_nulls(write, _absent_means(f"its default, {field.default_value!r}"))
    return _without_nulls(write, None)


def _absent_means(what: str) -> str:
    return f"is null, which would be read as {what}: declare the field optional, or fill the column"


def _without_nulls(write: Write, problem: str | None) -> Write:
    """Leaves the fields of nulls as they are; or, if there is a problem with that, refuses them."""

    def write_valid(messages: list[Any], array: pa.Array) -> None:
        if not array.null_count:
            return write(messages, array)
        rows = np.flatnonzero(np.asarray(array.is_valid()))
        if problem is not None:
            raise UnfitError(int(np.flatnonzero(np.asarray(array.is_null()))[0]), problem)
        try:
            write([messages[row] for row in rows.tolist()], array.drop_null())
        except UnfitError as error:
            raise UnfitError(int(rows[error.row]), str(error)) from error
        return None

    return write_valid


def _single(field: Any, arrow: pa.DataType, where: str) -> Write:
    """The writer of a field that holds one value, for a column without nulls."""
    message, name = field.message_type, field.name
    if message is None:
        return each(assign(name), scalars(field, arrow, where))
    if message.full_name in (TIMESTAMP, DURATION):
        return each(assign_time(name), times(field, arrow, where))
    if is_wrapper(message):
        return each(assign_wrapped(name), scalars(message.fields_by_name["value"], arrow, where))
    inside = _inside(field, arrow, where)

    def write(messages: list[Any], array: pa.Array) -> None:
        inner = [getattr(message, name) for message in messages]
        for one in inner:
            one.SetInParent()
        inside(inner, array.flatten())

    return write


def _inside(field: Any, arrow: pa.DataType, where: str) -> Fill:
    """Sets the fields of messages that are inside of others."""
    if not pa.types.is_struct(arrow):
        raise wrong(where, field, arrow)
    return message_writer(field.message_type, list(arrow), f"{where}.")


# --- Values that hold values ----------------------------------------------------------------------


def _list(field: Any, arrow: pa.DataType, where: str) -> Write:
    name, where = field.name, f"{where}[]"
    items = _items(field, arrow.value_type, where)

    def write(messages: list[Any], array: pa.Array) -> None:
        lengths = pc.list_value_length(array).to_pylist()
        flat = array.flatten()
        _refuse_null_items(lengths, flat)
        containers = [getattr(message, name) for message in messages]
        _located(lengths, lambda: items(containers, lengths, flat))

    return write


Items = Callable[[list[Any], list[int], pa.Array], None]
"""Adds items to containers, to each so many as are its own."""


def _items(field: Any, arrow: pa.DataType, where: str) -> Items:
    message = field.message_type
    if message is None:
        values_of = scalars(field, arrow, where)
        return lambda containers, lengths, flat: _extend(containers, lengths, values_of(flat))
    inside = _message_items(field, arrow, where)

    def add(containers: list[Any], lengths: list[int], flat: pa.Array) -> None:
        pairs = zip(containers, lengths, strict=True)
        inside([container.add() for container, length in pairs for _ in range(length)], flat)

    return add


def _message_items(field: Any, arrow: pa.DataType, where: str) -> Write:
    """Sets messages that are items, or values of a map."""
    message = field.message_type
    if message.full_name in (TIMESTAMP, DURATION):
        return each(assign_own_time, times(field, arrow, where))
    if is_wrapper(message):
        return each(assign("value"), scalars(message.fields_by_name["value"], arrow, where))
    inside = _inside(field, arrow, where)
    return lambda messages, array: inside(messages, array.flatten())


def _extend(containers: list[Any], lengths: list[int], values: list[Any]) -> None:
    at = 0
    for container, length in zip(containers, lengths, strict=True):
        try:
            container.extend(values[at : at + length])
        except UNFIT as error:
            raise UnfitError(at, f"an item does not fit: {error}") from error
        at += length


def _map(field: Any, arrow: pa.DataType, where: str) -> Write:
    name = field.name
    key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
    keys_of = scalars(key, arrow.key_type, where)
    values_of = scalars(value, arrow.item_type, where) if value.message_type is None else None
    inside = None if values_of else _message_items(value, arrow.item_type, where)

    def put(messages: list[Any], keys: list[Any], lengths: list[int], flat: pa.Array) -> None:
        owners = [message for message, n in zip(messages, lengths, strict=True) for _ in range(n)]
        if inside is not None:
            inside([getattr(m, name)[k] for m, k in zip(owners, keys, strict=True)], flat)
            return
        assert values_of is not None
        pairs = zip(keys, values_of(flat), strict=True)
        for row, (owner, (k, v)) in enumerate(zip(owners, pairs, strict=True)):
            try:
                getattr(owner, name)[k] = v
            except UNFIT as error:
                raise UnfitError(row, f"the entry {k!r} does not fit: {error}") from error

    def write(messages: list[Any], array: pa.Array) -> None:
        entries = array.cast(pa.list_(array.type.field(0)))
        lengths = pc.list_value_length(entries).to_pylist()
        flat_keys, flat = entries.flatten().flatten()
        _refuse_null_items(lengths, flat)

        def put_all() -> None:
            keys = keys_of(flat_keys)
            _refuse_double_keys(keys, lengths)
            put(messages, keys, lengths, flat)

        _located(lengths, put_all)

    return write


def _refuse_double_keys(keys: list[Any], lengths: list[int]) -> None:
    at = 0
    for length in lengths:
        if len(set(keys[at : at + length])) < length:
            raise UnfitError(at, "has a key twice")
        at += length


def _refuse_null_items(lengths: list[int], flat: pa.Array) -> None:
    if flat.null_count:
        at = int(np.flatnonzero(np.asarray(flat.is_null()))[0])
        raise UnfitError(_owner(lengths, at), _NULL_ITEM)


def _located(lengths: list[int], write: Callable[[], None]) -> None:
    """Raises UnfitError of an item as one of what holds it."""
    try:
        write()
    except UnfitError as error:
        raise UnfitError(_owner(lengths, error.row), f"in an item: {error}") from error


def _owner(lengths: list[int], item: int) -> int:
    return int(np.searchsorted(np.cumsum(lengths), item, side="right"))
