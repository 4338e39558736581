"""Backends with hardly any memory: in a test nearly every key goes to disk, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from onceflow.runtime.state.overflow import StateBackend
from onceflow.runtime.state.rocks.backend import RocksBackend

ROWS_IN_MEMORY = 2


@contextmanager
def tight_rocksdb(rows_in_memory: int = ROWS_IN_MEMORY) -> Iterator[StateBackend]:
    """RocksDB under tables that keep so many rows in memory between two batches; in a folder of its own."""
    with TemporaryDirectory(prefix="onceflow-", ignore_cleanup_errors=True) as folder:
        yield RocksBackend(1 << 20, rows_in_memory, rows_bytes=0, folder=Path(folder))
