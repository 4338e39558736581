"""What the fields of a message are as columns, if nothing else is asked for.

    double, float, bool, string, bytes   float64, float, bool, string, binary
    int32, sint32, sfixed32              int32
    int64, sint64, sfixed64              int64
    uint32, fixed32; uint64, fixed64     uint32; uint64
    enum                                 string: the value's name
    Timestamp, Duration                  timestamp[us, UTC], duration[us]
    wrappers (Int64Value, ...)           the value's, nullable
    another message                      struct
    repeated, map                        list, map

A field is nullable if a message tells whether it is there: `optional`, a message, a member of a oneof.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import OptionError

_SCALARS = {
    1: pa.float64(), 2: pa.float32(), 3: pa.int64(), 4: pa.uint64(), 5: pa.int32(), 6: pa.uint64(),
    7: pa.uint32(), 8: pa.bool_(), 9: pa.string(), 12: pa.binary(), 13: pa.uint32(), 14: pa.string(),
    15: pa.int32(), 16: pa.int64(), 17: pa.int32(), 18: pa.int64(),
}  # fmt: skip
"""The columns of scalars, by the numbers of FieldDescriptor.TYPE_*."""
ENUM = 14
TIMESTAMP = "google.protobuf.Timestamp"
DURATION = "google.protobuf.Duration"
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def scalar_type(field: Any) -> pa.DataType:
    """The column of a field that is no message."""
    return _SCALARS[field.type]


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_wrapper(message: Any) -> bool:
    return message.full_name in _WRAPPERS


def is_nullable(field: Any) -> bool:
    """Whether a message may be without the field, and has no other value for it then."""
    return bool(
        not field.is_repeated
        and field.has_presence
        and not field.is_required
        and not (field.message_type is None and field.has_default_value)
    )


def natural_schema(message: Any) -> pa.Schema:
    """The columns of all fields of a message. Raises OptionError naming a field that has none."""
    if not message.fields:
        raise OptionError(f"the message {message.full_name} has no fields, which makes no columns")
    return pa.schema(_fields(message, (), ""))


def _fields(message: Any, above: tuple[str, ...], where: str) -> list[pa.Field]:
    return [_field(field, (*above, message.full_name), f"{where}{field.name}") for field in message.fields]


def _field(field: Any, above: tuple[str, ...], where: str) -> pa.Field:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        values = pa.field("value", _type(value, above, where), nullable=False)
        return pa.field(field.name, pa.map_(_SCALARS[key.type], values), nullable=False)
    arrow = _type(field, above, where)
    if field.is_repeated:
        item = pa.field("item", arrow, nullable=False)
        return pa.field(field.name, pa.list_(item), nullable=False)
    return pa.field(field.name, arrow, is_nullable(field))


def _type(field: Any, above: tuple[str, ...], where: str) -> pa.DataType:
    message = field.message_type
    if message is None:
        return _SCALARS[field.type]
    if message.full_name == TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if message.full_name == DURATION:
        return pa.duration("us")
    if is_wrapper(message):
        return _SCALARS[message.fields_by_name["value"].type]
    if message.full_name in above or not message.fields:
        why = "contains itself" if message.fields else "has no fields"
        raise OptionError(
            f"the field {where!r} is a {message.full_name}, which {why}: there is no column for it. Leave it "
            "out, by a record type or an Arrow schema of the others: Protobuf(Message, of=Purchase)"
        )
    return pa.struct(_fields(message, above, f"{where}."))
