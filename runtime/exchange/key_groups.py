"""Partitioner: from a record's key to its key group to the subtask that owns it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from onceflow.runtime.records import Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of, subtask_of_key_group


class Partitioner:
    """Splits batches among the subtasks of a keyed operator. Stateless; any thread."""

    def __init__(self, columns: tuple[str, ...], max_parallelism: int, parallelism: int) -> None:
        assert 1 <= parallelism <= max_parallelism <= 1 << 15, (parallelism, max_parallelism)
        self._columns = columns
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        owners = [subtask_of_key_group(max_parallelism, parallelism, g) for g in range(max_parallelism)]
        self._owner = np.array(owners, np.uint16 if parallelism > 256 else np.uint8)  # 8 bits sort fastest

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
        owners = self._owner[key_groups_of(key_hash, self._max_parallelism)]
        counts = np.bincount(owners, minlength=self._parallelism)
        subtasks = np.flatnonzero(counts)
        if len(subtasks) == 1:
            yield int(subtasks[0]), hashed
            return
        by_owner = hashed.take(np.argsort(owners, kind="stable"))
        start = 0
        for subtask in subtasks:
            length = int(counts[subtask])
            yield int(subtask), by_owner.slice(start, length)
            start += length
