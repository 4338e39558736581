"""Rows in the order of their partitions: produced like that they take a half to a third of the time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.kafka.partition import Partitions
from onceflow.runtime.arrow_offsets import offsets_of
from onceflow.runtime.kernels.compiled import kernels_loaded
from onceflow.runtime.records import Indices
from onceflow.runtime.recycled_memory import RecycledMemory

_NARROW = 1 << 15


def order_by(partition: Partitions) -> Indices:
    """The rows' numbers by partition, those of one partition in their order."""
    lowest, highest = int(partition.min(initial=0)), int(partition.max(initial=0))
    if highest - lowest >= _NARROW:
        return np.argsort(partition, kind="stable")
    if kernels_loaded():
        return _counted(partition, lowest, highest)
    # NumPy sorts 16 bits by radix, in a tenth of the time.
    return np.argsort((partition - lowest).astype(np.int16), kind="stable")


def in_order(values: pa.LargeBinaryArray, order: Indices, memory: RecycledMemory) -> pa.LargeBinaryArray:
    """The values order[0], order[1] and so on; by a kernel into `memory`, where that is worth it."""
    if values.null_count or not len(order) or not kernels_loaded():
        return values.take(pa.array(order))
    from onceflow.runtime.kernels import taking

    offsets, size = offsets_of(values), 8 * (len(order) + 1)
    memory.reserve(size)
    moved: npt.NDArray[np.int64] = memory.claim(size).view(np.int64)
    moved[0] = 0
    total = taking.measure_texts(offsets, order, moved)
    texts = memory.reserve(total)
    data = values.buffers()[2]
    if total:
        taking.copy_texts(offsets, data.address, order, moved, texts.ctypes.data)
    buffers = [None, pa.py_buffer(moved), pa.py_buffer(memory.claim(total))]
    return pa.Array.from_buffers(pa.large_binary(), len(order), buffers)


def _counted(partition: Partitions, lowest: int, highest: int) -> Indices:
    from onceflow.runtime.kernels.counting_sort import sort_counted

    order = np.empty(len(partition), np.int64)
    ends = np.bincount(partition - lowest, minlength=highest - lowest + 1)
    sort_counted(partition, lowest, ends, order)
    return order
