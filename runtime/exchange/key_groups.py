"""Partitioner: from a record's key to its key group to the subtask that owns it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Indices, Int64s, Records, UInt64s
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of, subtask_of_key_group
from onceflow.runtime.state.rows import compile_kernels, take_rows


class Partitioner:
    """Splits batches among the subtasks of a keyed operator. Stateless; any thread."""

    def __init__(self, columns: tuple[str, ...], max_parallelism: int, parallelism: int) -> None:
        assert 1 <= parallelism <= max_parallelism <= 1 << 15, (parallelism, max_parallelism)
        self._columns = columns
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self._owner = _owners(max_parallelism, parallelism)
        self._is_compiled = ops().are_compiled
        if self._is_compiled and parallelism > 1:
            _make_kernels_ready(self._owner.dtype)  # before the first record

    def split(self, records: Records) -> Iterator[tuple[int, Records]]:
        """(subtask, its records) for each subtask that gets any; order within a subtask is kept.

        The records carry their `key_hash`. With parallelism 1 nothing is copied.
        """
        if not len(records):
            return
        key_hash = hash_keys(records.batch, self._columns)
        hashed = replace(records, key_hash=key_hash)
        if self._parallelism == 1:
            yield 0, hashed
            return
        order, ends = self._by_owner(key_hash)
        last = int(np.searchsorted(ends, len(records)))
        if last == 0 or ends[last - 1] == 0:
            yield last, hashed
            return
        by_owner = self._take(hashed, order)
        start = 0
        for subtask, end in enumerate(ends.tolist()):
            if end > start:
                yield subtask, by_owner.slice(start, end - start)
            start = end

    def _by_owner(self, key_hash: UInt64s) -> tuple[Indices, Int64s]:
        """The rows by subtask, each subtask's in their order; and where each subtask's end."""
        if not self._is_compiled:
            owners = self._owner[key_groups_of(key_hash, self._max_parallelism)]
            ends = np.cumsum(np.bincount(owners, minlength=self._parallelism))
            return np.argsort(owners, kind="stable"), ends
        return _order_by_owner(key_hash, self._owner, self._parallelism)

    def _take(self, records: Records, order: Indices) -> Records:
        """Take rows as Records.take does, with texts taken by a kernel."""
        if not self._is_compiled:
            return records.take(order)
        return Records(
            take_rows(records.batch, order),
            None if records.event_time is None else records.event_time.take(order),
            None if records.key_hash is None else records.key_hash.take(order),
            None if records.origin is None else records.origin.take(order),
            None if records.kind is None else records.kind.take(order),
        )


def _order_by_owner(key_hash: UInt64s, owner: npt.NDArray[Any], parallelism: int) -> tuple[Indices, Int64s]:
    from onceflow.runtime.exchange import partition_kernels

    order, ends = np.empty(len(key_hash), np.int64), np.zeros(parallelism, np.int64)
    owners = np.empty(len(key_hash), owner.dtype)
    partition_kernels.order_by_owner(key_hash, owner, owners, order, ends)
    return order, ends


@functools.cache
def _make_kernels_ready(owner_type: np.dtype[Any]) -> None:
    """Once for a process and a type of subtasks' numbers: each call would take a third of a millisecond."""
    _order_by_owner(np.zeros(0, np.uint64), np.zeros(1, owner_type), 1)
    hash_keys(pa.record_batch({"key": [""]}), ["key"])
    compile_kernels()


@functools.cache
def _owners(max_parallelism: int, parallelism: int) -> npt.NDArray[Any]:
    """The subtask of each key group; shared, and never written to."""
    owners = [subtask_of_key_group(max_parallelism, parallelism, g) for g in range(max_parallelism)]
    return np.array(owners, np.uint16 if parallelism > 256 else np.uint8)  # 8 bits sort fastest
