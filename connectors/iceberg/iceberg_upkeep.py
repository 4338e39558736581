"""What an Iceberg table needs now and then: few large files instead of many small ones, and snapshots that
nobody needs any more taken out of its metadata, a few at a time."""

from __future__ import annotations

import logging
import time

from onceflow.connectors.iceberg.catalog_errors import in_a_line
from onceflow.connectors.iceberg.settings import IcebergSettings
from onceflow.connectors.iceberg.small_files import join_small_files
from onceflow.connectors.tables.upkeep import Upkeep

_LOG = logging.getLogger(__name__)
_EXPIRE_EVERY = 20
"""Commits between two looks, where there is no compaction that they follow."""
_AT_ONCE_MAX = 100


class IcebergUpkeep(Upkeep):
    """See Upkeep."""

    def __init__(self, settings: IcebergSettings, ledger: str, where: str) -> None:
        expires = _EXPIRE_EVERY if settings.expire_ms is not None else None
        super().__init__(settings.compact_every or expires, self._look_after)
        self._settings = settings
        self._ledger = ledger
        self._where = where

    def _look_after(self) -> None:
        try:
            if self._settings.compact_every is not None:
                join_small_files(self._settings, self._ledger, self._where)
            if self._settings.expire_ms is not None:
                self._expire(self._settings.expire_ms)
        except Exception as error:
            _LOG.warning("%s: its upkeep is put off: %s", self._where, in_a_line(error))

    def _expire(self, expire_ms: int) -> None:
        table = self._settings.open_catalog().load_table(self._settings.table)
        before_ms = time.time() * 1000 - expire_ms
        needed = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [
            snapshot.snapshot_id
            for snapshot in table.snapshots()
            if snapshot.timestamp_ms < before_ms and snapshot.snapshot_id not in needed
        ]
        if old:
            table.maintenance.expire_snapshots().by_ids(old[:_AT_ONCE_MAX]).commit()
