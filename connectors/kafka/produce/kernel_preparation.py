"""Calls the kernels that put rows in the order of their partitions: see runtime/kernels/preparation.py."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onceflow.connectors.kafka.produce import partition_kernels
from onceflow.connectors.kafka.produce.partition_order import in_order, sort_partitions
from onceflow.runtime.arrays.recycled_memory import RecycledMemory


def prepare() -> None:
    """A row or none, in arrays of the sink's types."""
    none = 0
    partition_kernels.choose(none, none, none, none, none, np.zeros(0, np.int32))
    order, _ = sort_partitions(np.array([1, 0], np.int32))
    for arrow in (pa.binary(), pa.large_binary()):
        in_order(pa.array([b"a", b"b"], arrow), order, RecycledMemory())
