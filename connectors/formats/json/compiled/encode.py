"""Flat rows to JSON by a compiled loop, where kernels are on: text, integers and booleans.

It writes what polars would write, byte for byte, and leaves to it what it has no code for: text that
needs escapes, and the lowest integer. `json/encode.py` asks it first.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.format import NotFlatError
from onceflow.connectors.formats.json.compiled import write_kernels as kernels
from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.arrays.recycled_memory import Memory, NewMemory
from onceflow.runtime.kernels.text import has_escapes
from onceflow.runtime.records import Indices

_PLAIN_NAME = re.compile(r"[ !#-\[\]-~]+")
"""Printable ASCII without what JSON escapes."""
_TEXT = (pa.string(), pa.large_string())
_AS_THEY_ARE = np.zeros(0, np.int64)
_BOOLEANS = (b"false", b"true")
_NO_TEXTS = (0, 0, 0)


class FlatEncoder:
    """Writes batches of one schema. Used by one thread."""

    def __init__(self, schema: pa.Schema) -> None:
        """Raises NotFlatError."""
        self._types = schema.types
        self._kinds = [_kind(field) for field in schema]
        names = [f'"{name}":'.encode() for name in schema.names]
        self._before = [(b"," if i else b"{") + name for i, name in enumerate(names)]
        self._row_bytes = 1 + sum(map(len, self._before))
        self._row_bytes += sum(
            6 if kind == kernels.TEXTS else kernels.INTEGER_BYTES_MAX for kind in self._kinds
        )
        self._write(_Program(), _AS_THEY_ARE, 0, 0, NewMemory())  # compiles
        has_escapes(0, 0)

    def encode(self, batch: pa.RecordBatch, order: Indices | None, memory: Memory) -> pa.Array | None:
        """See PlacingEncoder. None if there is something in the batch that polars has to write; rows that
        `order` leaves out are not looked at less closely."""
        if not batch.num_rows or batch.schema.types != self._types:
            return None
        program, text_bytes = _Program(), 0
        for kind, before, array in zip(self._kinds, self._before, batch.columns, strict=True):
            program.put(before)
            if kind == kernels.TEXTS:
                text, offsets = np.frombuffer(array.buffers()[2] or b"", np.uint8), offsets_of(array)
                first, last = int(offsets[0]), int(offsets[-1])
                # What lies under nulls is looked at as well: polars writes the same there.
                if has_escapes(text.ctypes.data + first, text.ctypes.data + last):
                    return None
                text_bytes += last - first
                program.add_texts(array, text, offsets)
            else:
                program.add_numbers(kind, array, _numbers(array))
        if order is None:
            return self._write(program, _AS_THEY_ARE, batch.num_rows, text_bytes, memory)
        return self._write(program, order, len(order), text_bytes, memory)

    def _write(
        self, program: _Program, order: Indices, count: int, text_bytes: int, memory: Memory
    ) -> pa.Array | None:
        memory.reserve(8 * (count + 1))
        offsets = memory.claim(8 * (count + 1)).view(np.int64)
        out = memory.reserve(count * self._row_bytes + text_bytes + kernels.SLACK)
        if not kernels.write(program.steps(), order, offsets, out.ctypes.data):
            return None
        written = memory.claim(int(offsets[-1]))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(written)]
        return pa.Array.from_buffers(pa.large_binary(), count, buffers)


class _Program:
    """The steps by which `kernels.write` writes each row of a batch, and what they point to."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, ...]] = []
        self._text = b""
        """The text that stands before the next value."""
        self._kept: list[Any] = []

    def put(self, text: bytes) -> None:
        """The same in each row."""
        self._text += text

    def add_texts(self, array: pa.Array, text: npt.NDArray[np.uint8], offsets: npt.NDArray[Any]) -> None:
        self._kept.append(offsets)
        end = text.ctypes.data + len(text)
        self._add(kernels.TEXTS, array, text, (offsets.ctypes.data, offsets.itemsize, end))

    def add_numbers(self, kind: int, array: pa.Array, numbers: npt.NDArray[Any]) -> None:
        """Integers or booleans. What is the same in all rows, as the start and the end of results of one
        window, is written once and copied with what stands before and behind it."""
        if not array.null_count and numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
            number = int(numbers[0])
            self.put(b"%d" % number if kind == kernels.INTEGERS else _BOOLEANS[number])
        else:
            self._add(kind, array, numbers, _NO_TEXTS)

    def steps(self) -> npt.NDArray[np.int64]:
        self.put(b"}")
        self._step(kernels.END, 0, 0, _NO_TEXTS)
        return np.array(self._steps, np.int64)

    def _add(self, kind: int, array: pa.Array, values: npt.NDArray[Any], texts: tuple[int, int, int]) -> None:
        self._kept.append(values)
        valid = 0
        if array.null_count:
            self._kept.append(array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8))
            valid = self._kept[-1].ctypes.data
        self._step(kind, values.ctypes.data, valid, texts)

    def _step(self, kind: int, values: int, valid: int, texts: tuple[int, int, int]) -> None:
        before = pa.py_buffer(self._text + bytes(kernels.SLACK))
        self._kept.append(before)
        self._steps.append((kind, before.address, len(self._text), values, valid, *texts))
        self._text = b""


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


def _numbers(array: pa.Array) -> Any:
    if array.type == pa.bool_():
        return array.fill_null(False).to_numpy(zero_copy_only=False).view(np.uint8)
    if array.type != pa.int64():
        array = array.cast(pa.int64())
    raw = np.frombuffer(array.buffers()[1] or b"", np.int64)
    return raw[array.offset : array.offset + len(array)]
