"""Calls the kernels of keyed state and of the exchange: see runtime/kernels/preparation.py."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.records import Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.rows import take_rows
from onceflow.runtime.state.tables import Layout, keyed_table


def prepare() -> None:
    """Two keys through a partitioner and a state."""
    batch = pa.record_batch({"key": pa.array(["a", "b"])})
    for parallelism in (2, 300):  # owners are numbered in 8 or 16 bits
        for _ in Partitioner(("key",), 512, parallelism).split(Records(batch)):
            pass
    hashes = hash_keys(batch, ["key"])
    table = keyed_table(Layout(["key"], batch.schema, {}, "start"))
    found = table.find_or_add(batch, hashes, np.zeros(2, np.int64))
    table.remove(found)
    table.compact()
    take_rows(batch, np.arange(2))
