"""Columns that the JSON kernel writes: what it is told about them, and the Arrow arrays made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.json.compiled import value_kernels as kernels
from onceflow.connectors.formats.json.strict import JsonDecoder, has_factory
from onceflow.connectors.formats.json.structs import FLOAT32_MAX
from onceflow.runtime.kernels.blocks import BLOCK
from onceflow.runtime.types.column_forms import outside_name
from onceflow.runtime.types.value_types import RecordType

_SCRATCH_KEPT_BYTES = 64 << 20
_TEXT = (pa.string(), pa.large_string())
_FLOAT: dict[pa.DataType, Any] = {
    pa.float32(): FLOAT32_MAX,
    pa.float64(): np.finfo(np.float64).max,
}


class KernelColumns:
    """The columns of one decoder, batch after batch. Their types are plain: see `has_plain_types`."""

    def __init__(self, schema: pa.Schema, record_type: RecordType | None) -> None:
        self.words = np.zeros((len(schema), kernels.COLUMN_WORDS), np.int64)
        """A row for each column, as the kernel wants it."""
        self._types = schema.types
        self._texts = [i for i, arrow in enumerate(schema.types) if arrow in _TEXT]
        self._nullable = [i for i, field in enumerate(schema) if field.nullable]
        self._scratch = np.empty(0, np.uint8)  # texts of a batch, before it is known how long they are
        self._bytes_of: list[npt.NDArray[np.uint8]] = []  # what words hold the addresses of
        for field, words in zip(schema, self.words, strict=True):
            name = outside_name(field).encode() + b'"'
            words[kernels.NAME] = self._address(name)
            words[kernels.NAME_LENGTH] = len(name)
            words[kernels.KIND] = _kind(field.type)
            words[kernels.MINIMUM], words[kernels.MAXIMUM] = _range(field.type)
            self._describe_absent(words, field, record_type)
        self._default_bytes = int(self.words[:, kernels.DEFAULT_LENGTH].max(initial=0))

    def prepare(self, count: int, text_bytes: int) -> None:
        """Room for that many rows, with texts of that many bytes in each column."""
        words = self.words
        self._rows = np.empty((len(words), count + 1), np.int64)
        self._rows[:, 0] = 0
        words[:, kernels.ROWS] = self._rows.ctypes.data + np.arange(len(words)) * self._rows.strides[0]
        words[:, kernels.LAST_SEEN] = -1
        if self._nullable:
            self._nulls = np.zeros((len(self._nullable), count), np.uint8)
            words[self._nullable, kernels.NULLS] = (
                self._nulls.ctypes.data + np.arange(len(self._nullable)) * count
            )
        if self._texts:
            each = text_bytes + count * self._default_bytes + 2 * BLOCK
            if len(self._scratch) < each * len(self._texts):
                self._scratch = np.empty(each * len(self._texts), np.uint8)
            words[self._texts, kernels.TEXTS] = self._scratch.ctypes.data + np.arange(len(self._texts)) * each

    def take(self, count: int) -> list[pa.Array]:
        """The first rows, which the kernel has written; once after each `prepare`."""
        arrays = [self._array(i, arrow, count) for i, arrow in enumerate(self._types)]
        if len(self._scratch) > _SCRATCH_KEPT_BYTES:
            self._scratch = np.empty(0, np.uint8)
        return arrays

    def _array(self, index: int, arrow: pa.DataType, count: int) -> pa.Array:
        valid, nulls = None, 0
        if index in self._nullable:
            is_null = self._nulls[self._nullable.index(index), :count]
            nulls = int(np.count_nonzero(is_null))
            if nulls:
                valid = pa.py_buffer(np.packbits(is_null ^ 1, bitorder="little"))
        words = self._rows[index]
        if arrow in _TEXT:
            begin = int(self.words[index, kernels.TEXTS]) - self._scratch.ctypes.data
            text = self._scratch[begin : begin + int(words[count])].copy()
            ends = words[: count + 1] if arrow == pa.large_string() else words[: count + 1].astype(np.int32)
            return pa.Array.from_buffers(arrow, count, [valid, pa.py_buffer(ends), pa.py_buffer(text)], nulls)
        return pa.Array.from_buffers(arrow, count, [valid, _packed(words[1 : count + 1], arrow)], nulls)

    def _describe_absent(self, words: Any, field: pa.Field, record_type: RecordType | None) -> None:
        """JsonDecoder is asked what becomes of a record without the field."""
        words[kernels.ABSENT] = kernels.IS_ODD
        if has_factory(record_type, field.name):
            return
        value = JsonDecoder(pa.schema([field]), record_type, "error").decode([b"{}"]).batch.column(0)
        if not len(value) or (value.null_count and not field.nullable):
            return
        words[kernels.ABSENT] = kernels.IS_NULL if value.null_count else kernels.IS_DEFAULT
        if not value.null_count and field.type in _TEXT:
            text = value[0].as_py().encode()
            words[kernels.DEFAULT], words[kernels.DEFAULT_LENGTH] = self._address(text), len(text)
        elif not value.null_count:
            words[kernels.DEFAULT] = _word(value)

    def _address(self, content: bytes) -> int:
        """The address of a copy of these bytes, with a block to read behind them."""
        self._bytes_of.append(np.frombuffer(content + bytes(BLOCK), np.uint8).copy())
        return int(self._bytes_of[-1].ctypes.data)


def _kind(arrow: pa.DataType) -> int:
    if arrow in _TEXT:
        return kernels.TEXT
    if arrow in _FLOAT:
        return kernels.FLOAT
    return kernels.BOOLEAN if pa.types.is_boolean(arrow) else kernels.INTEGER


def _range(arrow: pa.DataType) -> tuple[int, int]:
    """MINIMUM and MAXIMUM of a column."""
    if arrow in _FLOAT:
        return 0, int(np.float64(_FLOAT[arrow]).view(np.int64))
    if not pa.types.is_integer(arrow):
        return 0, 0
    held = np.iinfo(arrow.to_pandas_dtype())
    return int(held.min), min(int(held.max), np.iinfo(np.int64).max)  # a larger uint64 is odd


def _word(value: pa.Array) -> int:
    """The one value as the kernel would have written it."""
    if pa.types.is_floating(value.type):
        return int(np.float64(value[0].as_py()).view(np.int64))
    return int(np.uint64(int(value[0].as_py()) & (1 << 64) - 1).view(np.int64))


def _packed(words: npt.NDArray[np.int64], arrow: pa.DataType) -> pa.Buffer:
    """Words as Arrow has them in a column of this type."""
    if pa.types.is_boolean(arrow):
        return pa.py_buffer(np.packbits(words.astype(np.bool_), bitorder="little"))
    if arrow == pa.float32():
        return pa.py_buffer(words.view(np.float64).astype(np.float32))
    if arrow.bit_width < 64:
        return pa.py_buffer(words.astype(arrow.to_pandas_dtype()))
    return pa.py_buffer(words)
