"""Schema resolution: how a writer's datums become the reader's columns.

A writer's field that the reader does not have is skipped; a reader's field that the writer does not have
is its default. Integers widen (int, long, float, double), text and bytes are read as each other, an enum
as text, times in the column's unit. Nothing narrows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.connectors.formats.avro.schema.nodes import Node, logical_type
from onceflow.connectors.formats.avro.schema.target import Target

_INT32 = (-(1 << 31), (1 << 31) - 1)
_INT64 = (-(1 << 63), (1 << 63) - 1)
_DAY_S = 86_400
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of Python's calendar: years 1 to 9999
_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_TEXT = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())


class UnreadableSchemaError(Exception):
    """A writer's schema that can't be read as the reader's columns: every value with it is bad."""


@dataclass(frozen=True)
class Read:
    """What to do with the next value of a datum: skip it (`arrow` is None) or make a column's value of it.

    `children`, in the writer's order: a record's fields, an array's items, a map's values, a union's
    branches. `columns`, of a record that is not skipped: for each of its columns the child that it comes
    from, or the default. `unfit`: why a value of this branch of a union can't be read. An integer is good
    from `low` to `high`, and then multiplied and floor-divided.
    """

    node: Node
    arrow: pa.DataType | None = None
    nullable: bool = True
    where: str = ""
    children: tuple[Read, ...] = ()
    columns: tuple[int | pa.Scalar, ...] = ()
    unfit: str = ""
    low: int = _INT64[0]
    high: int = _INT64[1]
    times: int = 1
    over: int = 1


def plan(writer: Node, targets: Sequence[Target]) -> Read:
    """How to read the writer's records into these columns. Raises UnreadableSchemaError."""
    if writer.kind != "record":
        raise UnreadableSchemaError(f"its schema is {writer}, and no record")
    return _record(writer, targets, pa.struct([t.field for t in targets]), "")


def skipped(node: Node) -> Read:
    """How to go past a value of this type."""
    low, high = _INT32 if node.kind == "int" else _INT64
    return Read(node, None, children=tuple(map(skipped, node.children)), low=low, high=high)


def _read(node: Node, target: Target, where: str) -> Read:
    if node.kind == "union":
        return _union(node, target, where)
    if node.kind == "null":
        if not target.nullable:
            raise UnreadableSchemaError(f"{where} is null, but is declared without None")
        return Read(node, target.arrow, True, where)
    arrow = target.arrow
    is_ = pa.types
    if node.kind == "record" and is_.is_struct(arrow):
        return _record(node, target.children, arrow, where, target.nullable)
    is_list = is_.is_list(arrow) or is_.is_large_list(arrow)
    is_map = is_.is_map(arrow) and arrow.key_type in _TEXT
    if (node.kind == "array" and is_list) or (node.kind == "map" and is_map):
        inner = _read(node.children[0], target.children[0], f"{where}[]")
        return Read(node, arrow, target.nullable, where, (inner,))
    if node.kind in ("int", "long"):
        return _integer(node, target, where)
    if _fits(node, arrow):
        return Read(node, arrow, target.nullable, where)
    raise _unfit(node, arrow, where)


def _record(
    node: Node, targets: Sequence[Target], arrow: pa.DataType, where: str, nullable: bool = True
) -> Read:
    children = [skipped(child) for child in node.children]
    columns: list[int | pa.Scalar] = []
    for target in targets:
        place = f"{where}.{target.name}" if where else target.name
        at = _index(node, target)
        if at is not None:
            children[at] = _read(node.children[at], target, place)
            columns.append(at)
        elif target.default is not None:
            columns.append(target.default)
        else:
            raise UnreadableSchemaError(f"it has no field {place!r}, and there is no default for it")
    return Read(node, arrow, nullable, where, tuple(children), tuple(columns))


def _index(node: Node, target: Target) -> int | None:
    """The writer's field of this name, or of one of the names that the reader also knows it by."""
    names = [field.name for field in node.fields]
    return next((names.index(name) for name in (target.name, *target.aliases) if name in names), None)


def _union(node: Node, target: Target, where: str) -> Read:
    branches = []
    for child in node.children:
        try:
            branches.append(_read(child, target, where))
        except UnreadableSchemaError as error:
            low, high = _INT32 if child.kind == "int" else _INT64
            inner = tuple(map(skipped, child.children))
            branches.append(Read(child, None, unfit=str(error), children=inner, low=low, high=high))
    if all(branch.unfit or branch.node.kind == "null" for branch in branches) and len(branches) > 1:
        raise UnreadableSchemaError(next(branch.unfit for branch in branches if branch.unfit))
    return Read(node, target.arrow, target.nullable, where, tuple(branches))


def _fits(node: Node, arrow: pa.DataType) -> bool:
    """Whether values that are no integers can be read as this Arrow type."""
    if pa.types.is_decimal128(arrow):
        is_same_scale = node.scale == arrow.scale and node.precision <= arrow.precision
        return node.logical == "decimal" and is_same_scale
    if node.kind == "fixed" and pa.types.is_fixed_size_binary(arrow):
        return node.size == int(arrow.byte_width)
    taken = {
        "boolean": (pa.bool_(),),
        "float": (pa.float32(), pa.float64()),
        "double": (pa.float64(),),
        "string": (*_TEXT, *_BYTES),
        "bytes": (*_TEXT, *_BYTES),
        "fixed": _BYTES,
        "enum": _TEXT,
    }
    return arrow in taken.get(node.kind, ())


def _integer(node: Node, target: Target, where: str) -> Read:
    arrow, is_ = target.arrow, pa.types
    low, high = _INT32 if node.kind == "int" else _INT64
    logical = logical_type(node)
    times = over = 1
    if is_.is_integer(arrow) and arrow != pa.uint64() and (node.kind == "int" or arrow.bit_width == 64):
        low, high = _narrowed((low, high), arrow)
    elif arrow == pa.uint32() and node.kind == "long":  # what a uint32 is written as
        low, high = 0, (1 << 32) - 1
    elif is_.is_timestamp(arrow) and (logical is None or is_.is_timestamp(logical)):
        times, over = _units(logical, arrow)
        per_s = _PER_S[arrow.unit if logical is None else logical.unit]
        if arrow.unit != "ns":  # which ends long before the year 9999
            first, last = _FIRST_DAY * _DAY_S * per_s, (_LAST_DAY + 1) * _DAY_S * per_s - 1
            low, high = max(low, first), min(high, last)
        low, high = max(low, -(-_INT64[0] // times)), min(high, _INT64[1] // times)
    elif arrow == pa.date32() and node.kind == "int" and logical in (None, arrow):
        low, high = _FIRST_DAY, _LAST_DAY
    elif (is_.is_time32(arrow) or is_.is_time64(arrow)) and logical in (None, arrow) and arrow.unit != "ns":
        low, high = 0, _DAY_S * _PER_S[arrow.unit] - 1
        if is_.is_time32(arrow) and node.kind == "long":
            raise _unfit(node, arrow, where)
    elif arrow not in (pa.float32(), pa.float64()):
        raise _unfit(node, arrow, where)
    return Read(node, arrow, target.nullable, where, low=low, high=high, times=times, over=over)


def _narrowed(bounds: tuple[int, int], arrow: pa.DataType) -> tuple[int, int]:
    bits = arrow.bit_width
    is_signed = pa.types.is_signed_integer(arrow)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    return max(bounds[0], low), min(bounds[1], high)


def _units(writer: pa.DataType | None, arrow: pa.DataType) -> tuple[int, int]:
    """What to multiply the writer's number by, and what to divide it by."""
    from_, to = _PER_S[arrow.unit if writer is None else writer.unit], _PER_S[arrow.unit]
    return (to // from_, 1) if to >= from_ else (1, from_ // to)


def _unfit(node: Node, arrow: pa.DataType, where: str) -> UnreadableSchemaError:
    return UnreadableSchemaError(f"{where} is {node} in its schema, which can't be read as {arrow}")
