"""The columns that Avro values are read into, with the defaults of fields that a writer does not have."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from onceflow.connectors.formats.avro.schema.nodes import Field, Node, arrow_field, logical_type, without_null
from onceflow.connectors.formats.wire_columns import AVRO_WIRE
from onceflow.runtime.errors import OptionError
from onceflow.runtime.types.columns_of_records import WrongFieldError, array_from_values
from onceflow.runtime.types.value_types import (
    Kind,
    MapOf,
    RecordField,
    RecordOf,
    RecordType,
    TupleOf,
    UnionOf,
    ValueType,
)

_READABLE = (
    "bool, int8 to int64, uint8 to uint32, float, double, string, binary, fixed_size_binary, date32, "
    "time32[ms], time64[us], timestamp, decimal128, list, struct, and map with string keys"
)


@dataclass(frozen=True)
class Target:
    """A column, a field of a struct, the items of a list or the values of a map."""

    field: pa.Field
    default: pa.Scalar | None = None
    aliases: tuple[str, ...] = ()
    children: tuple[Target, ...] = ()

    @property
    def name(self) -> str:
        return str(self.field.name)

    @property
    def arrow(self) -> pa.DataType:
        return self.field.type

    @property
    def nullable(self) -> bool:
        return bool(self.field.nullable)


# --- From Arrow and record types ------------------------------------------------------------------


Declared = Sequence[RecordField | None]
"""For each of some fields what the user's type says of it, if it says something."""


def targets_of_arrow(schema: pa.Schema, record: RecordType | None) -> tuple[Target, ...]:
    """A field of a record type has the type's default, if there is one; a nullable column of an Arrow
    schema is null. `schema`: of a record type's columns as `AVRO_WIRE` makes them. Raises OptionError naming
    a column that Avro has nothing for."""
    declared: Declared = [None] * len(schema) if record is None else record.fields
    return _fields(list(schema), declared, record is None, "")


def _fields(
    fields: Sequence[pa.Field], declared: Declared, may_lack_nullable: bool, above: str
) -> tuple[Target, ...]:
    made = []
    for field, said in zip(fields, declared, strict=True):
        default = None
        if said is not None and said.default is not None:
            default = _default(said, field)
        elif may_lack_nullable and field.nullable:
            default = pa.scalar(None, field.type)
        value_type = None if said is None else said.type
        made.append(_target(field, value_type, default, f"{above}{field.name}"))
    return tuple(made)


def _target(field: pa.Field, declared: ValueType | None, default: pa.Scalar | None, where: str) -> Target:
    arrow, is_ = field.type, pa.types
    kind = None if declared is None else declared.kind
    children: tuple[Target, ...] = ()
    if is_.is_list(arrow) or is_.is_large_list(arrow):
        items = None if declared is None else declared.items
        if isinstance(kind, MapOf):  # a list of entries
            entry = (None, RecordField("value", kind.values, None, False))
            inside = _fields(list(arrow.value_type), entry, False, f"{where}[].")
            children = (Target(arrow.value_field, None, (), inside),)
        else:
            children = (_target(arrow.value_field, items, None, f"{where}[]"),)
    elif is_.is_map(arrow) and arrow.key_type in (pa.string(), pa.large_string()):
        items = None if declared is None else declared.items
        children = (_target(arrow.item_field, items, None, f"{where}[]"),)
    elif is_.is_struct(arrow):
        inner = _inner_fields(kind, arrow.num_fields)
        may_lack_nullable = declared is None or isinstance(kind, UnionOf)
        children = _fields(list(arrow), inner, may_lack_nullable, f"{where}.")
    elif not _is_readable(arrow):
        raise OptionError(f"Avro has no way to read {where!r} as {arrow}; there are {_READABLE}")
    return Target(field, default, (), children)


def _inner_fields(kind: Kind | None, count: int) -> Declared:
    match kind:
        case RecordOf(record):
            return record.fields
        case TupleOf(parts):
            return [RecordField("", part, None, False) for part in parts]
        case UnionOf(_, variants):
            types = [ValueType(pa.null(), True, False, RecordOf(record)) for _, record in variants]
            return [None, *(RecordField("", of, None, False) for of in types)]
    return [None] * count


def _default(field: RecordField, wire: pa.Field) -> pa.Scalar:
    """The default of a field in its column on the wire. Raises OptionError if it is none of its type."""
    assert field.default is not None
    try:
        column = array_from_values([field.default.make()], field.column, field.type)
    except WrongFieldError as error:
        raise OptionError(f"the default of a field is wrong: {error}") from error
    value = column[0].as_py()
    plain = value if value is None or column.type == wire.type else AVRO_WIRE.writer(field.column)(value)
    return pa.scalar(plain, wire.type)


def _is_readable(arrow: pa.DataType) -> bool:
    is_ = pa.types
    plain = (
        pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(),
        pa.large_binary(), pa.date32(), pa.time32("ms"), pa.time64("us"),
    )  # fmt: skip
    return bool(
        arrow in plain
        or (is_.is_integer(arrow) and arrow != pa.uint64())
        or is_.is_timestamp(arrow)
        or is_.is_decimal128(arrow)
        or is_.is_fixed_size_binary(arrow)
    )


# --- From Avro ------------------------------------------------------------------------------------


def targets_of_avro(node: Node) -> tuple[Target, ...]:
    """The columns of a reader's schema. Raises OptionError naming what has no column."""
    if node.kind != "record":
        raise OptionError(f"an Avro schema of rows must be a record, not {node}")
    return tuple(_of_avro(f.name, c, f) for f, c in zip(node.fields, node.children, strict=True))


def _of_avro(name: str, node: Node, field: Field | None = None) -> Target:
    column = arrow_field(name, node)
    inner, _ = without_null(node, name)
    children: tuple[Target, ...] = ()
    if inner.kind == "record":
        children = targets_of_avro(inner)
    elif inner.kind in ("array", "map"):
        children = (_of_avro(f"{name}[]", inner.children[0]),)
    default = None
    if field is not None and field.has_default:
        try:
            default = pa.scalar(_from_json(field.default, node), column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, KeyError) as error:
            raise OptionError(f"the Avro default of {name!r} is wrong: {error}") from error
    return Target(column, default, () if field is None else field.aliases, children)


def _from_json(value: Any, node: Node) -> Any:
    """A default as JSON has it, as what Arrow takes. That of a union is one of its first type."""
    if node.kind == "union":
        fitting = (c for c in node.children if (c.kind == "null") == (value is None))
        return _from_json(value, next(fitting, node.children[0]))
    if node.kind in ("bytes", "fixed"):
        raw = value.encode("latin-1")
        if node.logical == "decimal":
            return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-node.scale)
        return raw
    if node.kind == "array":
        return [_from_json(item, node.children[0]) for item in value]
    if node.kind == "map":
        return [(key, _from_json(item, node.children[0])) for key, item in value.items()]
    if node.kind == "record":
        found = {}
        for field, child in zip(node.fields, node.children, strict=True):
            found[field.name] = _from_json(value.get(field.name, field.default), child)
        return found
    if logical_type(node) == pa.date32():
        return dt.date(1970, 1, 1) + dt.timedelta(days=value)
    return value
