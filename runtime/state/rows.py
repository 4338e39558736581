"""Rows by number: their order by hash, and Arrow columns of some of them. With kernels if they are on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from onceflow.runtime.kernels.compiled import kernels_enabled
from onceflow.runtime.records import Indices, UInt64s

_HALF = np.uint64(32)
_PARTS_MAX = 1 << 12
_TEXT_BYTES_MAX = (1 << 31) - 1


def order_by_hash(hashes: UInt64s, kernels: bool | None = None) -> Indices:
    """The order that sorts these hashes. `kernels`: whether to use them; None: if they are enabled."""
    if kernels_enabled() if kernels is None else kernels:
        from onceflow.runtime.state import row_kernels

        order = np.arange(len(hashes))
        if row_kernels.sort_by_hash(hashes.copy(), order):
            return order
    return np.argsort(hashes, kind="stable")


def parts_by_hash(
    hashes_of: Callable[[Indices], UInt64s], slots: Indices, part_rows: int, kernels: bool | None = None
) -> list[Indices]:
    """These slots in parts, all hashes of a part being lower than those of the next; parts have about so
    many slots if hashes are evenly spread. What is done with a part then stays in the cache."""
    parts = min(len(slots) // part_rows + 1, _PARTS_MAX)
    if parts == 1:
        return [slots]
    high = np.empty(len(slots), np.uint32)
    for first in range(0, len(slots), part_rows):
        high[first : first + part_rows] = hashes_of(slots[first : first + part_rows]) >> _HALF
    lowest = int(high.min())
    width = (int(high.max()) - lowest) // parts + 1
    part = ((high - np.uint32(lowest)) // np.uint32(width)).astype(np.uint16)
    del high
    ends = np.cumsum(np.bincount(part, minlength=parts))
    if kernels_enabled() if kernels is None else kernels:
        from onceflow.runtime.state import row_kernels

        in_parts = np.empty_like(slots)
        row_kernels.spread(part, slots, np.concatenate(([0], ends)), in_parts)
    else:
        in_parts = slots[np.argsort(part, kind="stable")]
    return np.split(in_parts, ends[:-1])


def take_rows(batch: pa.RecordBatch, slots: Indices, kernels: bool | None = None) -> pa.RecordBatch:
    """These rows, in this order. Arrow takes texts one by one; a kernel has many of them on their way."""
    if not (kernels_enabled() if kernels is None else kernels):
        return batch.take(pa.array(slots))
    columns = [_take_texts(c, slots) if _is_plain_text(c) else c.take(pa.array(slots)) for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def compile_kernels() -> None:
    """Have the kernels of this file ready, so that no record waits for the compiler."""
    order_by_hash(np.zeros(1, np.uint64))
    parts_by_hash(lambda slots: slots.view(np.uint64), np.zeros(2, np.int64), 1)
    take_rows(pa.record_batch({"text": ["x"]}), np.zeros(1, np.int64))


def _is_plain_text(column: pa.Array) -> bool:
    is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    return is_text and not column.null_count and len(column) > 0


def _take_texts(column: pa.Array, slots: Indices) -> pa.Array:
    from onceflow.runtime.state import row_kernels

    _, ends, data = column.buffers()
    old = np.frombuffer(ends, np.int32)[column.offset :][: len(column) + 1]
    new = np.zeros(len(slots) + 1, np.int32)
    total = row_kernels.measure_texts(old, slots, new)
    if total > _TEXT_BYTES_MAX:
        return column.take(pa.array(slots))  # which says so
    texts = np.empty(total, np.uint8)
    if total:
        row_kernels.copy_texts(old, data.address, slots, new, texts.ctypes.data)
    return pa.Array.from_buffers(column.type, len(slots), [None, pa.py_buffer(new), pa.py_buffer(texts)])
