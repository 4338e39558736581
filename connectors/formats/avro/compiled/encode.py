"""Columns to Avro values by compiled loops, for flat records, where kernels are on.

It writes only what `avro/encode.py` would write without a word: batches with nothing to refuse in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.avro.compiled import datum_kernels as kernels
from onceflow.connectors.formats.avro.schema.nodes import Node
from onceflow.connectors.formats.format import NotFlatError

_TEXT = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_PLAIN = {"float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_()}
_INT32 = (-(1 << 31), (1 << 31) - 1)


class FlatEncoder:
    """Writes batches of one schema as one record type. Used by one thread."""

    def __init__(self, schema: pa.Schema, node: Node) -> None:
        """Raises NotFlatError."""
        if node.kind != "record" or {f.name for f in node.fields} != set(schema.names):
            raise NotFlatError("a column for each field")
        self._fields = []
        for field, child in zip(node.fields, node.children, strict=True):
            value, null = _without_null(child)
            column = schema.get_field_index(field.name)
            _check(value, schema.field(column).type)
            self._fields.append((column, value, null))
        self._program = np.zeros((len(self._fields) + 1, kernels.WRITE_WIDTH), np.int64)
        self._run(self._program[:0], 0)  # compiles

    def encode(self, header: bytes, batch: pa.RecordBatch) -> pa.Array | None:
        """The values; None if there is something in the batch that is not to be written."""
        kept: list[Any] = [np.frombuffer(header or b"\0", np.uint8)]  # until everything is written
        self._program[0] = (kernels.CONSTANT, kept[0].ctypes.data, 0, 0, -1, len(header))
        for step, (column, node, null) in enumerate(self._fields, 1):
            array = batch.column(column)
            if array.null_count and null < 0:
                return None
            kind, values, offsets = _buffers(node, array, kept)
            if kind is None:
                return None
            valid = 0
            if array.null_count:
                kept.append(array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))
                valid = kept[-1].ctypes.data
            self._program[step] = (kind, values, offsets, valid, null, _width(node))
        return self._run(self._program, batch.num_rows)

    @staticmethod
    def _run(program: npt.NDArray[np.int64], count: int) -> pa.Array:
        offsets = np.zeros(count + 1, np.int64)
        kernels.measure(program, offsets)
        out = np.empty(int(offsets[-1]), np.uint8)
        kernels.write(program, offsets, out.ctypes.data)
        return pa.Array.from_buffers(
            pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(out)]
        )


def _without_null(node: Node) -> tuple[Node, int]:
    if node.kind != "union":
        return node, -1
    null = [i for i, child in enumerate(node.children) if child.kind == "null"]
    if len(node.children) != 2 or len(null) != 1:
        raise NotFlatError("union")
    return node.children[1 - null[0]], null[0]


def _check(node: Node, arrow: pa.DataType) -> None:
    is_number = node.kind in ("int", "long") and pa.types.is_integer(arrow) and arrow != pa.uint64()
    is_text = node.kind in ("string", "bytes") and arrow in _TEXT and node.logical is None
    if not (is_number or is_text or _PLAIN.get(node.kind) == arrow):
        raise NotFlatError(f"{node} of {arrow}")


def _width(node: Node) -> int:
    return {"float": 4, "double": 8, "boolean": 1}.get(node.kind, 0)


def _buffers(node: Node, array: pa.Array, kept: list[Any]) -> tuple[int | None, int, int]:
    """The kind of step, and the addresses of the values and of a text's offsets."""
    if node.kind in ("string", "bytes"):
        _, offsets, data = array.buffers()
        wide = array.type in (pa.large_string(), pa.large_binary())
        places = np.frombuffer(offsets, np.int64 if wide else np.int32)
        places = places[array.offset : array.offset + len(array) + 1].astype(np.int64, copy=False)
        kept += [places, data]
        return kernels.TEXTS, 0 if data is None else data.address, places.ctypes.data
    if node.kind in ("int", "long"):
        array = array.cast(pa.int64())
        if node.kind == "int" and len(array):
            bounds = pc.min_max(array).as_py()
            if bounds["min"] is not None and (bounds["min"] < _INT32[0] or bounds["max"] > _INT32[1]):
                return None, 0, 0
        kind = kernels.VARINTS
    else:
        kind = kernels.PLAIN
    if array.type == pa.bool_():
        values = array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
    else:
        width = array.type.bit_width // 8
        raw = np.frombuffer(array.buffers()[1], np.uint8)
        values = raw[array.offset * width : (array.offset + len(array)) * width]
    kept += [array, values]
    return kind, values.ctypes.data, 0
