"""How single values are written as Avro: numbers, text, bytes, times, decimals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.avro.byte_pieces import Narrow, Piece, fixed_width, varints
from onceflow.connectors.formats.avro.decimals import decimal_bytes
from onceflow.connectors.formats.avro.schema.nodes import Node, logical_type
from onceflow.runtime.records import Int64s

Write = Callable[[pa.Array], list[Piece]]
"""Writes values as their bytes; a null has none."""

_TEXT = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_INT32 = (-(1 << 31), (1 << 31) - 1)


class UnfitError(Exception):
    """A value that can't be written: its place in the array that was given, and the sentence's end."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row


def cell_writer(node: Node, arrow: pa.DataType) -> Write | None:
    """How to write values of this Arrow type, or None if they are not of the Avro type."""
    is_ = pa.types
    if node.logical == "decimal":
        fits = is_.is_decimal128(arrow) and arrow.scale == node.scale and arrow.precision <= node.precision
        return _decimal(node) if fits else None
    if node.kind == "null":
        return (lambda array: []) if is_.is_null(arrow) else None
    if node.kind in ("int", "long"):
        return _integer(node, arrow)
    if node.kind == "enum":
        return _enum(node) if arrow in _TEXT else None
    if node.kind == "fixed":
        return _fixed(node) if arrow in _BYTES or is_.is_fixed_size_binary(arrow) else None
    return _PLAIN.get((node.kind, arrow))


def _only(piece: Narrow, array: pa.Array) -> Narrow:
    return piece.only(np.asarray(array.is_valid())) if array.null_count else piece


def _integer(node: Node, arrow: pa.DataType) -> Write | None:
    logical, is_ = logical_type(node), pa.types
    unit: pa.DataType | None = None
    if logical is not None and is_.is_timestamp(arrow) and is_.is_timestamp(logical):
        unit = pa.timestamp(logical.unit, arrow.tz)
    elif not is_.is_integer(arrow) and arrow != logical:
        return None
    must_fit = node.kind == "int" and not (arrow.bit_width <= 32 and arrow != pa.uint32())

    def integer(array: pa.Array) -> list[Piece]:
        values = _int64s(array, unit)
        if must_fit:
            _check_int32(values, array)
        return [_only(varints(values), array)]

    return integer


def _int64s(array: pa.Array, unit: pa.DataType | None) -> Int64s:
    """The values as int64, nulls as 0. Raises UnfitError for what is too large, or finer than the unit."""
    try:
        array = array if unit is None else array.cast(unit)
        width = (
            pa.int32() if array.type.bit_width == 32 and not pa.types.is_integer(array.type) else pa.int64()
        )
        values = array.view(width) if not pa.types.is_integer(array.type) else array
        values = values.cast(pa.int64())
    except pa.ArrowInvalid as error:
        for row, value in enumerate(array):
            try:
                pa.array([value.as_py()], array.type).cast(unit or pa.int64())
            except pa.ArrowInvalid:
                raise UnfitError(row, str(error)) from error
        raise UnfitError(0, str(error)) from error
    found: Int64s = values.fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _check_int32(values: Int64s, array: pa.Array) -> None:
    wrong = (values < _INT32[0]) | (values > _INT32[1])
    if wrong.any():
        row = int(np.argmax(wrong))
        raise UnfitError(row, f"is {values[row]}, which is too large for Avro's int")


def _float(array: pa.Array) -> list[Piece]:
    dtype = "<f4" if array.type == pa.float32() else "<f8"
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    return [_only(fixed_width(values), array)]


def _widened(array: pa.Array) -> list[Piece]:
    return _float(array.cast(pa.float64()))


def _boolean(array: pa.Array) -> list[Piece]:
    values = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8)
    return [_only(fixed_width(values), array)]


def text(array: pa.Array) -> list[Piece]:
    size = pc.binary_length(array).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return [_only(varints(size), array), array.cast(pa.large_binary())]


_PLAIN: dict[tuple[str, pa.DataType], Write] = {
    ("boolean", pa.bool_()): _boolean,
    ("float", pa.float32()): _float,
    ("double", pa.float32()): _widened,
    ("double", pa.float64()): _float,
    **{("string", arrow): text for arrow in _TEXT},
    **{("bytes", arrow): text for arrow in _BYTES},
}


def _enum(node: Node) -> Write:
    symbols = pa.array(node.symbols, pa.large_string())

    def enum(array: pa.Array) -> list[Piece]:
        index = pc.index_in(array.cast(pa.large_string()), symbols)
        if index.null_count > array.null_count:
            row = pc.index(pc.and_(index.is_null(), array.is_valid()), True).as_py()
            raise UnfitError(row, f"is {array[row].as_py()!r}, which is not a symbol of the enum {node}")
        values = index.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return [_only(varints(values), array)]

    return enum


def _fixed(node: Node) -> Write:
    def fixed(array: pa.Array) -> list[Piece]:
        raw = array.cast(pa.large_binary() if array.type == pa.large_binary() else pa.binary())
        wrong = pc.not_equal(pc.binary_length(raw), node.size)
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            raise UnfitError(row, f"has {len(raw[row].as_py())} bytes, and {node} has {node.size}")
        return [raw.cast(pa.large_binary())]

    return fixed


def _decimal(node: Node) -> Write:
    def decimal(array: pa.Array) -> list[Piece]:
        bytes_, size = decimal_bytes(array)
        width = bytes_.shape[1]
        if node.kind == "bytes":
            return [
                _only(varints(size), array),
                _only(Narrow(bytes_, np.arange(width) >= width - size[:, None]), array),
            ]
        wrong = size > node.size
        if (wrong & np.asarray(array.is_valid())).any():
            raise UnfitError(int(np.argmax(wrong)), f"does not fit the {node.size} bytes of {node}")
        if node.size <= width:
            bytes_ = bytes_[:, width - node.size :]
        else:
            sign = np.where(bytes_[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
            bytes_ = np.hstack([np.repeat(sign, node.size - width, axis=1), bytes_])
        return [_only(Narrow(bytes_, np.ones(bytes_.shape, np.bool_)), array)]

    return decimal
