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
        """`patience_s`: how long `wait` waits."""
        self._uid = uid
        self._patience_s = patience_s
        self._is_over = threading.Event()
        self._is_closed = False
        self._error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """It has succeeded or failed, or nobody will know any more."""
        return self._is_over.is_set()

    @property
    def has_succeeded(self) -> bool:
        return self.is_over and self._error is None and not self._is_closed

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

    def close(self) -> None:
        """The writer is closed: nobody need wait any more."""
        self._is_closed = True
        self._is_over.set()

    def wait(self) -> None:
        """Raises Retryable if it has failed or takes too long, or if the writer is closed."""
        if not self._is_over.wait(self._patience_s):
            raise Retryable(f"sink {self._uid!r} has not recovered its last output in time")
        if self._error is not None:
            raise Retryable(f"sink {self._uid!r} could not recover: {self._error}")
        if self._is_closed:
            raise Retryable(f"sink {self._uid!r} is closed")
