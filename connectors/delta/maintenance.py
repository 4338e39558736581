"""What a Delta table needs now and then: few large files instead of many small ones, and old ones deleted."""

from __future__ import annotations

import logging

from deltalake.exceptions import DeltaError

from onceflow.connectors.delta.library_errors import in_a_line
from onceflow.connectors.delta.opened_table import fresh
from onceflow.connectors.delta.settings import DeltaSettings
from onceflow.connectors.tables.upkeep import Upkeep

_LOG = logging.getLogger(__name__)
_EXPIRE_EVERY = 100
"""Commits between two clean-ups, where there is no compaction that they follow."""
_HOUR_MS = 3_600_000


class Maintenance(Upkeep):
    """See Upkeep."""

    def __init__(self, settings: DeltaSettings, where: str) -> None:
        expires = _EXPIRE_EVERY if settings.expire_ms is not None else None
        super().__init__(settings.compact_every or expires, self._look_after)
        self._settings = settings
        self._where = where

    def _look_after(self) -> None:
        try:
            table = fresh(self._settings)
            if self._settings.compact_every is not None:
                table.optimize.compact()
            if self._settings.expire_ms is not None:
                # Not a full one, which would take files that no commit names yet.
                hours = -(-self._settings.expire_ms // _HOUR_MS)
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=False)
                table.cleanup_metadata()
        except (DeltaError, OSError, ValueError) as error:
            _LOG.warning("%s: maintenance is put off: %s", self._where, in_a_line(error))
