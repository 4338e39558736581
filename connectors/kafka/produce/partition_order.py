"""Rows in the order of their partitions: produced like that they take a half to a third of the time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.kafka.produce.partitioner import Partitions
from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.arrays.recycled_memory import Memory
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Indices

_NARROW = 1 << 15


def sort_partitions(partition: Partitions) -> tuple[Indices, Partitions]:
    """The rows' numbers by partition, those of one partition in their order; and the partitions in it."""
    lowest, highest = int(partition.min(initial=0)), int(partition.max(initial=0))
    if highest - lowest >= _NARROW:
        order = np.argsort(partition, kind="stable")
    elif ops().are_compiled:
        return _counted(partition, lowest, highest)
    else:  # NumPy sorts 16 bits by radix, in a tenth of the time
        order = np.argsort((partition - lowest).astype(np.int16), kind="stable")
    return order, partition.take(order)


def in_order(values: pa.Array, order: Indices, memory: Memory) -> pa.LargeBinaryArray:
    """The values order[0], order[1] and so on, each at most once, texts or bytes; by a kernel into `memory`,
    where that is worth it."""
    if values.null_count or not len(order) or not ops().are_compiled:
        return as_large(values).take(pa.array(order))
    from onceflow.runtime.kernels import taking

    offsets, size = offsets_of(values), 8 * (len(order) + 1)
    memory.reserve(size)
    moved: npt.NDArray[np.int64] = memory.claim(size).view(np.int64)
    moved[0] = 0
    room, data = int(offsets[-1] - offsets[0]), values.buffers()[2]
    texts = memory.reserve(room + taking.SLACK)
    address, size = (0, 0) if data is None else (data.address, data.size)
    total = taking.place_texts(offsets, address, address + size, order, moved, texts.ctypes.data, room)
    assert total >= 0, "each at most once"
    buffers = [None, pa.py_buffer(moved), pa.py_buffer(memory.claim(total))]
    return pa.Array.from_buffers(pa.large_binary(), len(order), buffers)


def as_large(values: pa.Array) -> pa.LargeBinaryArray:
    """Texts or bytes as PRODUCE_SCHEMA has them."""
    return values if values.type == pa.large_binary() else values.cast(pa.large_binary())


def _counted(partition: Partitions, lowest: int, highest: int) -> tuple[Indices, Partitions]:
    from onceflow.runtime.kernels import counting_sort

    order = np.empty(len(partition), np.int64)
    numbers = np.arange(lowest, highest + 1, dtype=np.int32)
    counts = np.zeros(len(numbers), np.int64)
    counting_sort.count(partition, lowest, counts)
    counting_sort.sort_counted(partition, lowest, counts.copy(), order)
    return order, np.repeat(numbers, counts)
