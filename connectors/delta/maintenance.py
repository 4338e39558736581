"""What a Delta table needs now and then: few large files instead of many small ones, and old ones deleted."""

from __future__ import annotations

import logging
import threading

from deltalake.exceptions import DeltaError

from onceflow.connectors.delta.library_errors import in_a_line
from onceflow.connectors.delta.opened_table import fresh
from onceflow.connectors.delta.settings import DeltaSettings

_LOG = logging.getLogger(__name__)
_EXPIRE_EVERY = 100
"""Commits between two clean-ups, where there is no compaction that they follow."""
_HOUR_MS = 3_600_000


class Maintenance:
    """Works on a thread of its own, so that no checkpoint waits for it. Whatever it does is a commit of its
    own that changes no row: a crash leaves it undone, and where it meets another commit it is tried again
    after the next ones."""

    def __init__(self, settings: DeltaSettings, where: str) -> None:
        self._settings = settings
        self._where = where
        self._every = settings.compact_every or (_EXPIRE_EVERY if settings.expire_ms is not None else None)
        self._commits = 0
        self._thread: threading.Thread | None = None

    def on_commit(self) -> None:
        """A checkpoint was committed."""
        self._commits += 1
        is_busy = self._thread is not None and self._thread.is_alive()
        if self._every is not None and self._commits >= self._every and not is_busy:
            self._commits = 0
            self._thread = threading.Thread(target=self._work, name="delta-maintenance", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait for what is under way. At the end of an attempt, so of a job."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
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
