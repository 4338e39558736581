"""Rows by number: Arrow columns of some of them. With kernels if they are on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Indices

_TEXT_BYTES_MAX = (1 << 31) - 1


def take_rows(batch: pa.RecordBatch, rows: Indices) -> pa.RecordBatch:
    """These rows, in this order. Arrow takes texts one by one; a kernel has many of them on their way."""
    if not ops().are_compiled:
        return batch.take(pa.array(rows))
    columns = [_take_texts(c, rows) if _is_plain_text(c) else c.take(pa.array(rows)) for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def compile_kernels() -> None:
    """Have the kernels of this file ready, so that no record waits for the compiler."""
    take_rows(pa.record_batch({"text": ["x"]}), np.zeros(1, np.int64))


def _is_plain_text(column: pa.Array) -> bool:
    is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    return is_text and not column.null_count and len(column) > 0


def _take_texts(column: pa.Array, rows: Indices) -> pa.Array:
    from onceflow.runtime.kernels import taking

    _, ends, data = column.buffers()
    old = np.frombuffer(ends, np.int32)[column.offset :][: len(column) + 1]
    new = np.zeros(len(rows) + 1, np.int32)
    total = taking.measure_texts(old, rows, new)
    if total > _TEXT_BYTES_MAX:
        return column.take(pa.array(rows))  # which says so
    texts = np.empty(total + taking.SLACK, np.uint8)
    if total:
        taking.copy_texts(old, data.address, data.address + data.size, rows, new, texts.ctypes.data)
    return pa.Array.from_buffers(column.type, len(rows), [None, pa.py_buffer(new), pa.py_buffer(texts)])
