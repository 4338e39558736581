"""Avro datums to values, one at a time: slow, strict, and able to say what is wrong with a datum.

The judge of `avro/column_walk.py`, which hands it every datum that it is not sure of. Libraries' readers are
not strict enough to tell good from bad: they take negative lengths, indices from the end, and integers
that don't fit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.avro.plan import Read, skipped
from onceflow.connectors.formats.avro.schema.nodes import Node

ReadValue = Callable[[bytes, int], tuple[Any, int]]
"""(datum, position) to the value there, as pa.array takes it, and the position after it."""

DatumEnds = Callable[[bytes, int], list[int]]
"""(datums one behind the other, how many) to where each ends. It raises BadDatumError if they are not as many
whole ones."""

VARINT_BYTES_MAX = 10


class BadDatumError(Exception):
    """Bytes that are no datum of the writer's schema, or a value that its column can't take."""


def row_reader(read: Read) -> Callable[[bytes], list[Any]]:
    """A function from a datum to the values of its columns. It raises BadDatumError with the reason."""
    reader = _record(read)

    def read_row(datum: bytes) -> list[Any]:
        values, at = reader(datum, 0)
        if at != len(datum):
            raise BadDatumError(f"{len(datum) - at} bytes are left over after the last field")
        return list(values)

    return read_row


def datum_ends(writer: Node) -> DatumEnds:
    """A function that finds where datums of this schema end, by skipping each."""
    skip = _reader(skipped(writer))

    def ends(datums: bytes, count: int) -> list[int]:
        found, at = [], 0
        for _ in range(count):
            _, at = skip(datums, at)
            found.append(at)
        if at != len(datums):
            raise BadDatumError(f"{len(datums) - at} bytes are left over after the last record")
        return found

    return ends


def _reader(read: Read) -> ReadValue:
    if read.node.kind == "record":
        names = [] if read.arrow is None else [field.name for field in read.arrow]
        fields = _record(read)

        def struct_(datum: bytes, at: int) -> tuple[Any, int]:
            values, at = fields(datum, at)
            return dict(zip(names, values, strict=True)), at

        return struct_
    return _NESTED.get(read.node.kind, _leaf)(read)


def _record(read: Read) -> ReadValue:
    readers = list(map(_reader, read.children))
    columns = [c if isinstance(c, int) else c.as_py() for c in read.columns]
    is_read = [isinstance(c, int) for c in read.columns]
    sources = list(zip(columns, is_read, strict=True))

    def record(datum: bytes, at: int) -> tuple[Any, int]:
        found = []
        for reader in readers:
            value, at = reader(datum, at)
            found.append(value)
        return [found[column] if is_field else column for column, is_field in sources], at

    return record


def _varint(datum: bytes, at: int) -> tuple[int, int]:
    """A zigzag integer of 64 bits. As in Java, bits beyond the 64th of its tenth byte count for nothing."""
    value = shift = 0
    for here in range(at, min(at + VARINT_BYTES_MAX, len(datum))):
        byte = datum[here]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << 64) - 1
            return (value >> 1) ^ -(value & 1), here + 1
        shift += 7
    if len(datum) - at < VARINT_BYTES_MAX:
        raise BadDatumError("it ends in the middle of a number or length")
    raise BadDatumError("a number or length takes more than 10 bytes")


def _leaf(read: Read) -> ReadValue:
    kind = read.node.kind
    if kind in ("int", "long"):
        return _integer(read)
    if kind in ("string", "bytes", "fixed"):
        return _bytes(read)
    if kind == "null":
        return lambda datum, at: (None, at)
    if kind == "boolean":
        return _boolean
    if kind == "enum":
        return _enum(read)
    return _float(read)


def _integer(read: Read) -> ReadValue:
    low, high, times, over, where = read.low, read.high, read.times, read.over, read.where
    convert: Callable[[int], Any] = int
    if read.arrow is not None and pa.types.is_floating(read.arrow):
        to = np.float32 if read.arrow == pa.float32() else np.float64
        convert = lambda value: float(np.int64(value).astype(to))  # noqa: E731 - rounded once

    def integer(datum: bytes, at: int) -> tuple[Any, int]:
        value, at = _varint(datum, at)
        if not low <= value <= high:
            raise BadDatumError(f"{where or 'a number'} is {value}, which is not from {low} to {high}")
        return convert(value * times // over), at

    return integer


def _boolean(datum: bytes, at: int) -> tuple[Any, int]:
    byte = _take(datum, at, 1)[0]
    if byte > 1:
        raise BadDatumError(f"a boolean is {byte}, neither 0 nor 1")
    return byte == 1, at + 1


def _float(read: Read) -> ReadValue:
    form, size = ("<f", 4) if read.node.kind == "float" else ("<d", 8)

    def float_(datum: bytes, at: int) -> tuple[Any, int]:
        return struct.unpack(form, _take(datum, at, size))[0], at + size

    return float_


def _enum(read: Read) -> ReadValue:
    symbols = read.node.symbols

    def enum(datum: bytes, at: int) -> tuple[Any, int]:
        index, at = _varint(datum, at)
        if not 0 <= index < len(symbols):
            raise BadDatumError(f"there is no symbol {index} in the enum {read.node}")
        return symbols[index], at

    return enum


def _take(datum: bytes, at: int, size: int) -> bytes:
    if not 0 <= size <= len(datum) - at:
        raise BadDatumError(f"a value of {size} bytes is begun, and {len(datum) - at} are left")
    return datum[at : at + size]


def _bytes(read: Read) -> ReadValue:
    fixed, arrow, where = read.node.size if read.node.kind == "fixed" else None, read.arrow, read.where
    convert: Callable[[bytes], Any] | None = None
    if arrow in (pa.string(), pa.large_string()):
        convert = lambda raw: _text(raw, where)  # noqa: E731
    elif arrow is not None and pa.types.is_decimal128(arrow):
        convert = lambda raw: _decimal(raw, arrow, where)  # noqa: E731

    def bytes_(datum: bytes, at: int) -> tuple[Any, int]:
        size, at = (fixed, at) if fixed is not None else _varint(datum, at)
        raw = _take(datum, at, size)
        return raw if convert is None else convert(raw), at + size

    return bytes_


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        bad = error.object[error.start]
        raise BadDatumError(f"{where} is not UTF-8: {error.reason} (byte 0x{bad:02x})") from error


def _decimal(raw: bytes, arrow: pa.DataType, where: str) -> Decimal:
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**arrow.precision:
        raise BadDatumError(f"{where} has more than {arrow.precision} digits")
    sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return Decimal((sign, digits, -arrow.scale))  # exact: the context's precision counts for nothing


# --- Values that hold values ----------------------------------------------------------------------


def _union(read: Read) -> ReadValue:
    branches = list(map(_reader, read.children))
    unfit = [branch.unfit for branch in read.children]
    is_null = [branch.node.kind == "null" for branch in read.children]

    def union(datum: bytes, at: int) -> tuple[Any, int]:
        index, at = _varint(datum, at)
        if not 0 <= index < len(branches):
            raise BadDatumError(
                f"there is no branch {index} in the union of {read.where or 'a skipped field'}"
            )
        if unfit[index]:
            raise BadDatumError(unfit[index])
        return (None, at) if is_null[index] else branches[index](datum, at)

    return union


def _blocks(datum: bytes, at: int) -> tuple[int, int]:
    """How many items the next block of an array or a map has; 0: there is no more."""
    count, at = _varint(datum, at)
    if count < 0:  # then the block's size in bytes comes first, for those who skip it
        count, (_, at) = -count, _varint(datum, at)
    if count > len(datum) - at:
        raise BadDatumError(f"a block of {count} items is begun, and {len(datum) - at} bytes are left")
    return count, at


def _array(read: Read) -> ReadValue:
    item = _reader(read.children[0])

    def array(datum: bytes, at: int) -> tuple[Any, int]:
        items = []
        count, at = _blocks(datum, at)
        while count:
            for _ in range(count):
                value, at = item(datum, at)
                items.append(value)
            count, at = _blocks(datum, at)
        return items, at

    return array


def _map(read: Read) -> ReadValue:
    item = _reader(read.children[0])
    is_read = read.arrow is not None

    def pairs(datum: bytes, at: int) -> tuple[Any, int]:
        items = []
        count, at = _blocks(datum, at)
        while count:
            for _ in range(count):
                size, at = _varint(datum, at)
                raw, at = _take(datum, at, size), at + size
                value, at = item(datum, at)
                items.append((_text(raw, f"a key of {read.where}") if is_read else raw, value))
            count, at = _blocks(datum, at)
        return items, at

    return pairs


_NESTED: dict[str, Callable[[Read], ReadValue]] = {"union": _union, "array": _array, "map": _map}
