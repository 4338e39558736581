"""Recovery: no checkpoint is promised before what the restored one promised is committed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from onceflow.runtime.errors import Retryable


class Recovery:
    """Whether a writer has recovered. The commit thread is in `under_way`, and staging waits in `wait`: a
    checkpoint that completed before would forget what the one before it promised."""

    def __init__(self, uid: str, patience_s: float) -> None:
        self._uid = uid
        self._patience_s = patience_s
        self._is_over = threading.Event()
        self._error: BaseException | None = None

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Around the recovery. What it raises, `wait` tells."""
        try:
            yield
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._is_over.set()

    def give_up(self) -> None:
        """The writer is closed: nobody need wait any more."""
        self._error = self._error or Retryable("it is closed")
        self._is_over.set()

    def wait(self) -> None:
        """Raises Retryable if it has failed, or takes too long."""
        if not self._is_over.wait(self._patience_s):
            raise Retryable(f"sink {self._uid!r} has not recovered its last output in time")
        if self._error is not None:
            raise Retryable(f"sink {self._uid!r} could not recover: {self._error}")
