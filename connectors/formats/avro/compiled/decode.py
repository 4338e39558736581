"""Avro datums to columns by compiled loops, for flat records: where kernels are on, in place of ColumnWalk.

Flat: fields of single values, text or bytes, each maybe in a union with null. Other records are read by
`avro/column_walk.py`. As there, a datum with a surprise is only marked, and told by `avro/rows.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.avro.arrays import floats, integers, is_utf8, symbols, text, with_nulls
from onceflow.connectors.formats.avro.compiled import datum_kernels as kernels
from onceflow.connectors.formats.avro.lanes import Datums, Lanes
from onceflow.connectors.formats.avro.plan import Read
from onceflow.connectors.formats.format import NotFlatError
from onceflow.runtime.records import Int64s, Mask

_INT32_MAX = (1 << 31) - 1
_SIZES = {"float": 4, "double": 8, "boolean": 1}
_KINDS = {
    "int": kernels.INTEGER, "long": kernels.INTEGER, "enum": kernels.INTEGER, "fixed": kernels.FIXED,
    "float": kernels.FLOAT, "double": kernels.DOUBLE, "boolean": kernels.BOOLEAN,
    "string": kernels.TEXT, "bytes": kernels.TEXT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Column:
    """Where a field's numbers and validity are; `read` says what they mean."""

    read: Read
    slot: int
    validity: int


class FlatWalk:
    """What ColumnWalk does, for one record type."""

    def __init__(self, read: Read) -> None:
        """Raises NotFlatError."""
        self._columns: list[int | pa.Scalar] = list(read.columns)
        self._slots = self._validities = 0
        self._fields: list[_Column | None] = []
        steps = [self._step(child) for child in read.children]
        self._program = np.array(steps, np.int64).reshape(len(steps), kernels.STEP_WIDTH)

    def columns(self, datums: Datums, lanes: Lanes) -> list[pa.Array]:
        """See ColumnWalk."""
        numbers, valid = self._walk(datums.data, lanes)
        count = len(lanes.at)
        made: list[pa.Array] = []
        for column in self._columns:
            if isinstance(column, int):
                field = self._fields[column]
                assert field is not None, "a field that becomes a column has a slot"
                made.append(self._array(field, numbers, valid, datums, lanes))
            else:
                made.append(pa.repeat(column, count))
        return made

    def ends(self, datums: bytes, count: int) -> Int64s | None:
        """Where each of these datums ends that lie one behind the other, for a walk that only skips; None:
        they may not be as many whole ones."""
        data = np.frombuffer(datums + bytes(8), np.uint8)
        found, numbers = np.empty(count, np.int64), np.empty((0, 0), np.int64)
        are_whole = kernels.ends(data.ctypes.data, len(datums), self._program, numbers, found)
        return found if are_whole else None

    def _step(self, read: Read) -> list[int]:
        value, null, may_be_null = _without_null(read)
        if value.node.kind not in _KINDS or value.node.logical == "decimal" or value.unfit:
            raise NotFlatError(value.node.kind)
        validity = slot = -1
        if null >= 0 and may_be_null:
            validity, self._validities = self._validities, self._validities + 1
        if value.arrow is not None:
            slot = self._slots
            self._slots += 2 if value.node.kind in ("string", "bytes", "fixed") else 1
        is_read = value.arrow is not None
        self._fields.append(_Column(value, slot, validity) if is_read else None)
        low, high = value.low, value.high
        if value.node.kind == "enum":
            low, high = 0, len(value.node.symbols) - 1
        size = value.node.size if value.node.kind == "fixed" else _SIZES.get(value.node.kind, 0)
        return [_KINDS[value.node.kind], slot, low, high, null, validity, size]

    def _walk(self, data: np.ndarray, lanes: Lanes) -> tuple[np.ndarray, np.ndarray]:
        count = len(lanes.at)
        numbers = np.zeros((self._slots, count), np.int64)
        valid = np.ones((self._validities, count), np.bool_)
        kernels.walk(data.ctypes.data, lanes.at, lanes.end, self._program, numbers, valid, lanes.is_sure)
        return numbers, valid

    def _array(
        self, field: _Column, numbers: np.ndarray, valid: np.ndarray, datums: Datums, lanes: Lanes
    ) -> pa.Array:
        read, kind = field.read, field.read.node.kind
        first = numbers[field.slot]
        if kind in ("string", "bytes", "fixed"):
            array = _text(read.arrow, first, numbers[field.slot + 1], datums, lanes)
        elif kind in ("float", "double"):
            array = floats(first, read)
        elif kind == "boolean":
            array = pa.array(first.astype(np.bool_))
        elif kind == "enum":
            array = symbols(first, read)
        else:
            # A doubtful row may have 0, which a column need not be able to hold.
            array = integers(first, read)
        return array if field.validity < 0 else with_nulls(array, valid[field.validity])


def compile_loops() -> None:
    """Compile the loops before records come: the compiler, or loading what it made, takes a moment."""
    nothing, matrix = np.empty(0, np.int64), np.empty((0, 0), np.int64)
    sure = np.empty(0, np.bool_)
    kernels.walk(0, nothing, nothing, matrix, matrix, matrix.astype(np.bool_), sure)
    kernels.ends(0, 0, matrix, matrix, nothing)
    kernels.gather(0, nothing, np.zeros(1, np.int64), 0)


def _without_null(read: Read) -> tuple[Read, int, bool]:
    """The value in a union of it and null, the index of null, and whether the column may be null."""
    if read.node.kind != "union":
        return read, -1, False
    if len(read.children) != 2 or sum(child.node.kind == "null" for child in read.children) != 1:
        raise NotFlatError("union")
    null = next(i for i, child in enumerate(read.children) if child.node.kind == "null")
    return read.children[1 - null], null, not read.children[null].unfit


def _text(arrow: pa.DataType, start: Int64s, size: Int64s, datums: Datums, lanes: Lanes) -> pa.Array:
    raw = _gathered(start, size, datums)
    if arrow not in (pa.string(), pa.large_string()):
        return _as_bytes(arrow, raw, size)
    try:
        return text(raw, arrow)
    except pa.ArrowInvalid:
        wrong: Mask = np.array([not is_utf8(value) for value in raw.to_pylist()])
    lanes.doubt(wrong)
    return _gathered(start, np.where(wrong, 0, size), datums).cast(arrow)


def _as_bytes(arrow: pa.DataType, raw: pa.Array, size: Int64s) -> pa.Array:
    if not pa.types.is_fixed_size_binary(arrow):
        return raw.cast(arrow)
    if (size == arrow.byte_width).all():
        return raw.cast(arrow)
    blank = bytes(arrow.byte_width)  # in the place of a null or doubtful one
    return pa.array([value or blank for value in raw.to_pylist()], arrow)


def _gathered(start: Int64s, size: Int64s, datums: Datums) -> pa.Array:
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    target = np.empty(int(offsets[-1]), np.uint8)
    kernels.gather(datums.data.ctypes.data, start, offsets, target.ctypes.data)
    is_small = offsets[-1] <= _INT32_MAX
    arrow, places = (pa.binary(), offsets.astype(np.int32)) if is_small else (pa.large_binary(), offsets)
    return pa.Array.from_buffers(arrow, len(size), [None, pa.py_buffer(places), pa.py_buffer(target)])
