"""Flat rows to JSON by a compiled loop, where kernels are on: text, integers and booleans.

It writes what polars would write, byte for byte, and leaves to it what it has no code for: text that
needs escapes, and the lowest integer. `json_encoder.py` asks it first.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats import json_write_kernels as kernels
from onceflow.runtime.kernels.text import has_escapes
from onceflow.runtime.records import Indices
from onceflow.runtime.recycled_memory import Memory, NewMemory

_PLAIN_NAME = re.compile(r"[ !#-\[\]-~]+")
"""Printable ASCII without what JSON escapes."""
_TEXT = (pa.string(), pa.large_string())
_AS_THEY_ARE = np.zeros(0, np.int64)


class NotFlatError(Exception):
    """Columns that this file has no loop for."""


class FlatEncoder:
    """Writes batches of one schema. Used by one thread."""

    def __init__(self, schema: pa.Schema) -> None:
        """Raises NotFlatError."""
        self._types = schema.types
        self._kinds = [_kind(field) for field in schema]
        names = [f'"{name}":'.encode() for name in schema.names]
        before = [b",{"[not i :][:1] + name for i, name in enumerate(names)]
        self._before = [(np.frombuffer(text + bytes(kernels.SLACK), np.uint8), len(text)) for text in before]
        self._row_bytes = 1 + sum(map(len, before))
        self._row_bytes += sum(
            6 if kind == kernels.TEXTS else kernels.INTEGER_BYTES_MAX for kind in self._kinds
        )
        self._program = np.zeros((len(names), kernels.WRITE_WIDTH), np.int64)
        self._write(self._program, _AS_THEY_ARE, 0, 0, NewMemory())  # compiles
        has_escapes(0, 0)

    def encode(self, batch: pa.RecordBatch, order: Indices | None, memory: Memory) -> pa.Array | None:
        """See PlacingEncoder. None if there is something in the batch that polars has to write; rows that
        `order` leaves out are not looked at less closely."""
        if not batch.num_rows or batch.schema.types != self._types:
            return None
        kept: list[Any] = []  # until everything is written
        text_bytes = 0
        for step, (kind, (before, length)) in enumerate(zip(self._kinds, self._before, strict=True)):
            array = batch.column(step)
            places = end = 0
            if kind == kernels.TEXTS:
                text, offsets = _text(array)
                first, last = int(offsets[0]), int(offsets[-1])
                # What lies under nulls is looked at as well: polars writes the same there.
                if has_escapes(text.ctypes.data + first, text.ctypes.data + last):
                    return None
                text_bytes += last - first
                values, places, end = text, offsets.ctypes.data, text.ctypes.data + len(text)
                kept.append(offsets)
            else:
                values = _numbers(array)
            valid = 0
            if array.null_count:
                kept.append(array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))
                valid = kept[-1].ctypes.data
            kept.append(values)
            self._program[step, : kernels.STEP_WIDTH] = (
                kind,
                values.ctypes.data,
                places,
                valid,
                before.ctypes.data,
                length,
                end,
            )
        if order is None:
            return self._write(self._program, _AS_THEY_ARE, batch.num_rows, text_bytes, memory)
        return self._write(self._program, order, len(order), text_bytes, memory)

    def _write(
        self, program: npt.NDArray[np.int64], order: Indices, count: int, text_bytes: int, memory: Memory
    ) -> pa.Array | None:
        memory.reserve(8 * (count + 1))
        offsets = memory.claim(8 * (count + 1)).view(np.int64)
        out = memory.reserve(count * self._row_bytes + text_bytes + kernels.SLACK)
        if not kernels.write(program, order, offsets, out.ctypes.data):
            return None
        written = memory.claim(int(offsets[-1]))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(written)]
        return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def _kind(field: pa.Field) -> int:
    if not _PLAIN_NAME.fullmatch(field.name):
        raise NotFlatError(field.name)
    if field.type in _TEXT:
        return kernels.TEXTS
    if field.type == pa.bool_():
        return kernels.BOOLEANS
    if pa.types.is_integer(field.type) and field.type != pa.uint64():
        return kernels.INTEGERS
    raise NotFlatError(str(field))


def _text(array: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Bytes and offsets of a column; of a slice, its own offsets."""
    _, offsets, data = array.buffers()
    places: Any = np.frombuffer(offsets, np.int64 if array.type == pa.large_string() else np.int32)
    places = places[array.offset : array.offset + len(array) + 1].astype(np.int64, copy=False)
    return np.frombuffer(data or b"", np.uint8), places


def _numbers(array: pa.Array) -> Any:
    if array.type == pa.bool_():
        return array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
    if array.type != pa.int64():
        array = array.cast(pa.int64())
    raw = np.frombuffer(array.buffers()[1] or b"", np.int64)
    return raw[array.offset : array.offset + len(array)]
