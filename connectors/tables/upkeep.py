"""What a table needs now and then, beside the commits of checkpoints: small files joined, old ones let go."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Upkeep:
    """Works on a thread of its own, so that no checkpoint waits for it. Whatever it does is a commit of its
    own that changes no row: a crash leaves it undone, and where it can't be done now it is tried again after
    the next commits."""

    def __init__(self, every: int | None, work: Callable[[], None]) -> None:
        """`every`: after so many commits; None: never. `work` does it, and raises nothing."""
        self._every = every
        self._work = work
        self._commits = 0
        self._thread: threading.Thread | None = None

    def on_commit(self) -> None:
        """A checkpoint was committed."""
        self._commits += 1
        is_busy = self._thread is not None and self._thread.is_alive()
        if self._every is not None and self._commits >= self._every and not is_busy:
            self._commits = 0
            self._thread = threading.Thread(target=self._work, name="table-upkeep", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait for what is under way. At the end of an attempt, so of a job."""
        if self._thread is not None:
            self._thread.join()
