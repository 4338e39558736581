"""Rows of many JSON values by the kernel of json_kernels.py. Needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats import json_kernels as kernels
from onceflow.connectors.formats.format import as_binary, rows_without_columns
from onceflow.connectors.formats.json_columns import KernelColumns
from onceflow.connectors.formats.spans import Spans
from onceflow.runtime.record_types import RecordType
from onceflow.runtime.records import Int64s

_NO_WORDS = np.empty(0, np.int64)
_NO_BYTES = np.empty(0, np.uint8)


class KernelRows:
    """See PlainRows."""

    values_min = 256
    odd_share_max = 0.5

    def __init__(self, schema: pa.Schema, record_type: RecordType | None) -> None:
        """`schema`: columns with plain types."""
        self._schema = schema
        self._columns = KernelColumns(schema, record_type)
        self._shape = kernels.empty_shape()
        # No record waits for the compiler.
        kernels.decode_rows(_NO_WORDS, _NO_WORDS, _NO_BYTES, self._columns.words, self._shape, _NO_WORDS)

    def decode(self, values: pa.Array | Spans) -> tuple[pa.RecordBatch, Int64s]:
        array = as_binary(values)
        begins, ends, _tail = _addresses(array)
        is_null = _NO_BYTES
        if array.null_count:
            is_null = array.is_null().to_numpy(zero_copy_only=False).view(np.uint8)
        odd = np.empty(len(array), np.int64)
        self._columns.prepare(len(array), int((ends - begins).sum()))
        count = kernels.decode_rows(begins, ends, is_null, self._columns.words, self._shape, odd)
        arrays = self._columns.take(count)
        if not arrays:
            return rows_without_columns(count), odd[: len(array) - count]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), odd[: len(array) - count]


def _addresses(array: pa.Array) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8] | None]:
    """Where each value begins and ends, and what to keep alive meanwhile: the last values may lie so
    near to their buffer's end that the kernel can't read them there, and are copied."""
    _, offsets, data = array.buffers()
    width: Any = np.int64 if array.type == pa.large_binary() else np.int32
    places = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    address = content.ctypes.data
    begins, ends = places[:-1] + address, places[1:] + address
    first = int(np.searchsorted(places[1:], len(content) - kernels.READ_BEHIND, "right"))
    if first == len(array):
        return begins, ends, None
    begin, end = int(places[first]), int(places[-1])
    tail = np.zeros(end - begin + kernels.READ_BEHIND, np.uint8)
    tail[: end - begin] = content[begin:end]
    moved = tail.ctypes.data - address - begin
    begins[first:] += moved
    ends[first:] += moved
    return begins, ends, tail
