"""Columns to Avro values: column by column, then all pieces of each row joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.avro.byte_pieces import (
    Piece,
    constant,
    fixed_width,
    joined,
    regrouped,
    varints,
)
from onceflow.connectors.formats.avro.cells import UnfitError, Write, cell_writer, text
from onceflow.connectors.formats.avro.schema.nodes import Node, without_null
from onceflow.connectors.formats.avro.schema.target import Target, targets_of_avro
from onceflow.connectors.formats.format import EncodeError, NotFlatError
from onceflow.connectors.formats.registry.wire_format import header
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.nearest import nearest
from onceflow.runtime.records import Int64s

if TYPE_CHECKING:
    from onceflow.connectors.formats.avro.compiled.encode import FlatEncoder

_TEXT = (pa.string(), pa.large_string())


class AvroEncoder:
    """See Encoder. `schema_id` is called when the first batch is encoded; None: no header."""

    def __init__(self, schema: pa.Schema, node: Node, schema_id: Callable[[], int | None]) -> None:
        if len(set(schema.names)) < len(schema):
            raise GraphError(f"Avro can't write two columns of the same name: {', '.join(schema.names)}")
        try:
            targets = targets_of_avro(node)
        except OptionError as error:
            raise GraphError(str(error)) from error
        self._fields = _record_fields(node, list(schema), targets, "")
        self._flat = _flat_encoder(schema, node) if ops().are_compiled else None
        self._schema_id = schema_id
        self._header: bytes | None = None

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises Retryable if the schema has to be registered and the registry stays away, Fatal or
        GraphError if it has or takes no such schema."""
        if self._header is None:
            schema_id = self._schema_id()
            self._header = b"" if schema_id is None else header(schema_id)
        if self._flat is not None and batch.num_rows:
            written = self._flat.encode(self._header, batch)
            if written is not None:
                return written
        pieces: list[Piece] = [constant(self._header, batch.num_rows)] if self._header else []
        for name, column, write in self._fields:
            values = pa.repeat(column, batch.num_rows) if isinstance(column, pa.Scalar) else None
            try:
                pieces += write(batch.column(column) if values is None else values)
            except UnfitError as error:
                raise EncodeError(f"column {name!r}, row {error.row} of a batch: {error}") from error
        if not pieces:
            return pa.array([b""] * batch.num_rows, pa.large_binary())
        return joined(pieces)


def _flat_encoder(schema: pa.Schema, node: Node) -> FlatEncoder | None:
    """Compiled loops, if they know columns of this kind."""
    from onceflow.connectors.formats.avro.compiled.encode import FlatEncoder

    try:
        return FlatEncoder(schema, node)
    except NotFlatError:
        return None


def _record_fields(
    node: Node, columns: Sequence[pa.Field], targets: Sequence[Target], above: str
) -> list[tuple[str, int | pa.Scalar, Write]]:
    """The record's fields: each one's name, the column that it comes from, or its default, and its writer."""
    names = [column.name for column in columns]
    strange = [name for name in names if name not in {field.name for field in node.fields}]
    if strange:
        known = [field.name for field in node.fields]
        raise GraphError(
            f"the Avro schema {node} has no field {above}{strange[0]}{nearest(strange[0], known)}: leave the "
            "column out, or add the field"
        )
    fields: list[tuple[str, int | pa.Scalar, Write]] = []
    for target, child in zip(targets, node.children, strict=True):
        where = f"{above}{target.name}"
        if target.name in names:
            at = names.index(target.name)
            fields.append((where, at, _writer(child, columns[at].type, where)))
        elif target.default is not None:
            fields.append((where, target.default, _writer(child, target.arrow, where)))
        else:
            raise GraphError(
                f"the Avro schema {node} has the field {where!r} without a default, which the rows don't have"
            )
    return fields


def _writer(node: Node, arrow: pa.DataType, where: str) -> Write:
    """Raises GraphError if a column of this type can't be written as this Avro type."""
    if node.kind == "union":
        return _union(node, arrow, where)
    value = _value(node, arrow, where)

    def required(array: pa.Array) -> list[Piece]:
        if array.null_count and node.kind != "null":
            row = pc.index(array.is_null(), True).as_py()
            raise UnfitError(row, "is null, for which the schema has no place")
        return value(array)

    return required


def _union(node: Node, arrow: pa.DataType, where: str) -> Write:
    try:
        inner, _ = without_null(node, where)
    except OptionError as error:
        raise GraphError(str(error)) from error
    index = next(i for i, child in enumerate(node.children) if child is inner)
    null = next((i for i, child in enumerate(node.children) if child.kind == "null"), None)
    value, required = _value(inner, arrow, where), _writer(inner, arrow, where)

    def union(array: pa.Array) -> list[Piece]:
        if not array.null_count or null is None:
            return [constant(bytes([2 * index]), len(array)), *required(array)]
        branch = np.where(np.asarray(array.is_null()), np.uint8(2 * null), np.uint8(2 * index))
        return [fixed_width(branch), *value(array)]

    return union


def _value(node: Node, arrow: pa.DataType, where: str) -> Write:
    is_ = pa.types
    is_list, is_map = is_.is_list(arrow) or is_.is_large_list(arrow), is_.is_map(arrow)
    if node.kind == "record" and is_.is_struct(arrow):
        return _without_nulls(_record(node, arrow, where))
    if node.kind == "array" and is_list:
        return _without_nulls(_list(_writer(node.children[0], arrow.value_type, f"{where}[]")))
    if node.kind == "map" and is_map and arrow.key_type in _TEXT:
        return _without_nulls(_map(_writer(node.children[0], arrow.item_type, f"{where}[]")))
    if (write := cell_writer(node, arrow)) is not None:
        return write
    raise GraphError(f"column {where!r} is {arrow}, which can't be written as the Avro type {node}: cast it")


# --- Values that hold values ----------------------------------------------------------------------


def _without_nulls(write: Write) -> Write:
    """Writes what is not null, then puts nothing where null was."""

    def write_valid(array: pa.Array) -> list[Piece]:
        if not array.null_count:
            return write(array)
        is_valid = np.asarray(array.is_valid())
        rows = np.flatnonzero(is_valid)
        try:
            pieces = write(array.drop_null())
        except UnfitError as error:
            raise UnfitError(int(rows[error.row]), str(error)) from error
        place = np.zeros(len(array), np.int64)
        place[rows] = np.arange(len(rows))
        return [joined(pieces).take(pa.array(place, mask=~is_valid))] if pieces else []

    return write_valid


def _record(node: Node, arrow: pa.DataType, where: str) -> Write:
    try:
        targets = targets_of_avro(node)
    except OptionError as error:
        raise GraphError(str(error)) from error
    fields = _record_fields(node, list(arrow), targets, f"{where}.")

    def record(array: pa.Array) -> list[Piece]:
        children: list[Any] = array.flatten()  # as a slice has them
        pieces: list[Piece] = []
        for name, column, write in fields:
            values = pa.repeat(column, len(array)) if isinstance(column, pa.Scalar) else children[column]
            try:
                pieces += write(values)
            except UnfitError as error:
                raise UnfitError(error.row, f"{name} {error}") from error
        return pieces

    return record


def _list(write: Write) -> Write:
    def list_(array: pa.Array) -> list[Piece]:
        lengths = pc.list_value_length(array).cast(pa.int64()).to_numpy(zero_copy_only=False)
        return _blocks(lengths, array.flatten(), write)

    return list_


def _map(write: Write) -> Write:
    def pairs(array: pa.Array) -> list[Piece]:
        offsets = array.offsets.to_numpy().astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        keys, items = array.keys[first:last], array.items[first:last]

        def pair(_: pa.Array) -> list[Piece]:
            return [*text(keys), *write(items)]

        return _blocks(np.diff(offsets), keys, pair)

    return pairs


def _blocks(lengths: Int64s, items: pa.Array, write: Write) -> list[Piece]:
    """One block of all items, if there are any, then the empty block that ends it."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    try:
        pieces = write(items) if len(items) else []
    except UnfitError as error:
        owner = int(np.searchsorted(offsets, error.row, side="right")) - 1
        raise UnfitError(owner, f"item {error.row - int(offsets[owner])} {error}") from error
    end = constant(b"\0", len(lengths))
    count = varints(lengths).only(lengths > 0)
    if not pieces:
        return [count, end]
    return [count, regrouped(joined(pieces), offsets), end]
