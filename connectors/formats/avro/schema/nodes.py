"""Avro schemas: parsed into a tree, and what Arrow type stands for each, both ways.

    boolean                          bool
    int, long                        int32, int64
    float, double                    float, double
    string, uuid, enum               string
    bytes, fixed, duration           binary
    date                             date32
    time-millis, time-micros         time32[ms], time64[us]
    timestamp-millis, -micros, -nanos         timestamp[ms, UTC], [us, UTC], [ns, UTC]
    local-timestamp-millis, -micros, -nanos   timestamp[ms], [us], [ns]
    decimal (precision up to 38)     decimal128
    ["null", X], [X, "null"]         the same as X, nullable
    array, map, record               list, map, struct

A logical type that is not in this list is ignored, as Avro's specification wants it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.connectors.formats.registry.schemas import RegisteredSchema
from onceflow.runtime.errors import OptionError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DECIMAL_PRECISION_MAX = 38

AvroJson = str | Mapping[str, Any] | Sequence[Any]
"""A schema as JSON text, or as what json.loads makes of it."""

_MISSING_PACKAGES = (
    "Avro needs packages that are not installed: pip install 'onceflow[avro]' (it lacks {name!r})"
)
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}


@dataclass(frozen=True)
class Node:
    """One type of a schema. `kind` is a primitive's name, or fixed, enum, record, array, map or union.

    `logical` is None unless it changes what the values mean here. `children`: a record's field types, an
    array's items, a map's values, a union's branches.
    """

    kind: str
    logical: str | None = None
    name: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    children: tuple[Node, ...] = ()
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        return self.name or (f"{self.kind} ({self.logical})" if self.logical else self.kind)


@dataclass(frozen=True)
class Field:
    """A field of a record; its type is the child at the same place."""

    name: str
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


def fastavro() -> Any:
    """The library, or OptionError saying how to get it."""
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise OptionError(_MISSING_PACKAGES.format(name=error.name)) from error
    return fastavro


def parse_schema(schema: AvroJson, named: Sequence[AvroJson] = ()) -> Node:
    """A schema as a tree. `named`: schemas of the types that it refers to by name, in the order in which
    they build on each other. Raises OptionError saying what is wrong with it.
    """
    library = fastavro()
    known: dict[str, Any] = {}
    try:
        for each in named:
            library.schema.parse_schema(_loaded(each), named_schemas=known)
        parsed = library.schema.parse_schema(_loaded(schema), named_schemas=known)
    except Exception as error:  # the library raises what comes along: KeyError, TypeError, its own
        raise OptionError(f"this is no Avro schema: {error}; it begins with {str(schema)[:100]}") from error
    return _node(parsed, known, ())


def parse_registered(schema: RegisteredSchema) -> Node:
    """A schema of a registry as a tree. Raises OptionError for what is no Avro schema."""
    return parse_schema(schema.text, [each.text for each in schema.imports])


def _loaded(schema: AvroJson) -> Any:
    if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"'):
        return json.loads(schema)
    return schema


def _node(schema: Any, known: Mapping[str, Any], inside: tuple[str, ...]) -> Node:
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return Node(schema)
        if schema in inside or schema not in known:
            raise OptionError(f"the Avro type {schema!r} contains itself: recursive types have no columns")
        return _node(known[schema], known, inside)
    if isinstance(schema, list):
        return Node("union", children=tuple(_node(branch, known, inside) for branch in schema))
    kind = schema["type"]
    if kind in ("record", "error"):
        return _record(schema, known, inside)
    if kind == "array":
        return Node("array", children=(_node(schema["items"], known, inside),))
    if kind == "map":
        return Node("map", children=(_node(schema["values"], known, inside),))
    if kind == "enum":
        return Node("enum", name=schema["name"], symbols=tuple(schema["symbols"]))
    if kind == "fixed" or (isinstance(kind, str) and kind in PRIMITIVES):
        return _simple(kind, schema)
    return _node(kind, known, inside)  # {"type": {"type": ...}}


def _record(schema: Any, known: Mapping[str, Any], inside: tuple[str, ...]) -> Node:
    name = schema["name"]
    if name in inside:
        raise OptionError(f"the Avro type {name!r} contains itself: recursive types have no columns")
    fields = [
        Field(f["name"], tuple(f.get("aliases", ())), "default" in f, f.get("default"))
        for f in schema["fields"]
    ]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise OptionError(f"the Avro record {name!r} has two fields of the same name: {', '.join(names)}")
    children = tuple(_node(f["type"], known, (*inside, name)) for f in schema["fields"])
    return Node("record", name=name, children=children, fields=tuple(fields))


def _simple(kind: str, schema: Any) -> Node:
    name, size = schema.get("name", ""), schema.get("size", 0)
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema["precision"], schema.get("scale", 0)
        if precision <= DECIMAL_PRECISION_MAX:
            return Node(kind, "decimal", name, size, precision, scale)
        raise OptionError(
            f"an Avro decimal of precision {precision} has no column: {DECIMAL_PRECISION_MAX} digits are "
            "the most"
        )
    return Node(kind, logical if (kind, logical) in _LOGICAL else None, name, size)


# --- To Arrow -------------------------------------------------------------------------------------


def logical_type(node: Node) -> pa.DataType | None:
    """The Arrow type of its logical type, if it has one that is not decimal."""
    return _LOGICAL.get((node.kind, node.logical or ""))


def arrow_field(name: str, node: Node) -> pa.Field:
    """The column for values of this type. Raises OptionError naming a type that has none."""
    inner, nullable = without_null(node, name)
    return pa.field(name, _arrow_type(inner, name), nullable)


def without_null(node: Node, where: str) -> tuple[Node, bool]:
    """The type in a union with null, and True; any other type as it is, and False."""
    if node.kind != "union":
        return node, node.kind == "null"
    rest = [child for child in node.children if child.kind != "null"]
    if len(rest) != 1:
        said = ", ".join(map(str, node.children))
        raise OptionError(
            f"the Avro field {where!r} is a union of {said}: there are columns only for unions of one type "
            "and null"
        )
    return rest[0], len(rest) < len(node.children)


def _arrow_type(node: Node, where: str) -> pa.DataType:
    if node.logical == "decimal":
        return pa.decimal128(node.precision, node.scale)
    if node.logical is not None:
        return _LOGICAL[node.kind, node.logical]
    if node.kind == "record":
        children = zip(node.fields, node.children, strict=True)
        return pa.struct([arrow_field(field.name, child) for field, child in children])
    if node.kind == "array":
        return pa.list_(arrow_field("item", node.children[0]))
    if node.kind == "map":
        return pa.map_(pa.string(), arrow_field("value", node.children[0]))
    if node.kind == "union":
        raise OptionError(f"the Avro field {where!r} is a union in a union, which Avro does not allow")
    return _PLAIN[node.kind]
