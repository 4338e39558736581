"""Backends that go to extremes in a test: nearly every key goes to disk, and each snapshot that can builds on
the one before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from onceflow.runtime.state.overflow import StateBackend, Unlimited
from onceflow.runtime.state.snapshot_options import SnapshotOptions

ROWS_IN_MEMORY = 2
EAGER = SnapshotOptions(are_incremental=True, whole_rows_max=0, whole_share=9.0)
INCREMENTAL = Unlimited(EAGER)
"""All in memory."""


@contextmanager
def tight_rocksdb(
    rows_in_memory: int = ROWS_IN_MEMORY, snapshots: SnapshotOptions = EAGER
) -> Iterator[StateBackend]:
    """RocksDB under tables that keep so many rows in memory between two batches; in a folder of its own."""
    # Here and not above: it is an extra.
    from onceflow.runtime.state.rocks.backend import RocksBackend
    from onceflow.runtime.state.rocks.database import Database

    made: list[Database] = []

    class Tight(RocksBackend):
        def _database(self) -> Database:
            made.append(super()._database())
            return made[-1]

    with TemporaryDirectory(prefix="onceflow-", ignore_cleanup_errors=True) as folder:
        try:
            yield Tight(1 << 20, rows_in_memory, rows_bytes=0, folder=Path(folder), snapshots=snapshots)
        finally:
            # A test that failed on purpose has closed nothing. RocksDB writes what it has in memory when it
            # is let go of. Where its folder is gone it can't, and sleeps for a second with Python's lock in
            # its hands: with thirty of them a slot of a later test was taken for one that stands still.
            for database in made:
                database.close()
