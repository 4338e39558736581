"""Snapshots that nobody needs any more are taken out of the table's metadata, a few at a time."""

from __future__ import annotations

import logging
import threading
import time

from onceflow.connectors.iceberg.catalog_errors import in_a_line
from onceflow.connectors.iceberg.settings import IcebergSettings

_LOG = logging.getLogger(__name__)
_EVERY = 20
"""Commits between two looks."""
_AT_ONCE_MAX = 100


class SnapshotExpiry:
    """Works on a thread of its own, so that no checkpoint waits for it. A commit of its own, that changes no
    row: a crash leaves it undone, and where it meets another commit it is tried again after the next ones."""

    def __init__(self, settings: IcebergSettings, where: str) -> None:
        self._settings = settings
        self._where = where
        self._commits = 0
        self._thread: threading.Thread | None = None

    def on_commit(self) -> None:
        """A checkpoint was committed."""
        self._commits += 1
        is_busy = self._thread is not None and self._thread.is_alive()
        if self._settings.expire_ms is not None and self._commits >= _EVERY and not is_busy:
            self._commits = 0
            self._thread = threading.Thread(target=self._work, name="iceberg-expiry", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait for what is under way. At the end of an attempt, so of a job."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        assert self._settings.expire_ms is not None
        try:
            table = self._settings.open_catalog().load_table(self._settings.table)
            before_ms = time.time() * 1000 - self._settings.expire_ms
            needed = {ref.snapshot_id for ref in table.metadata.refs.values()}
            old = [
                snapshot.snapshot_id
                for snapshot in table.snapshots()
                if snapshot.timestamp_ms < before_ms and snapshot.snapshot_id not in needed
            ]
            if old:
                table.maintenance.expire_snapshots().by_ids(old[:_AT_ONCE_MAX]).commit()
        except Exception as error:
            _LOG.warning("%s: expiry is put off: %s", self._where, in_a_line(error))
