"""Turns: the threads that use one writer's connections take turns, until the writer is closed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from onceflow.runtime.errors import Retryable

_CLOSE_S = 1.0


class Turns:
    """One thread at a time has the connections. Who has them when the writer is closed lets go."""

    def __init__(self, uid: str, let_go: Callable[[], None]) -> None:
        """`let_go`: ends all there is; may be called several times."""
        self.closed = threading.Event()
        """Set by `close`: nobody need wait for anything any more."""
        self._uid = uid
        self._let_go = let_go
        self._in_use = threading.Lock()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, and have it for the block. Raises Retryable once it is closed."""
        with self._in_use:
            try:
                if self.closed.is_set():
                    raise Retryable(f"sink {self._uid!r} is closed")
                yield
            finally:
                if self.closed.is_set():
                    self._let_go()

    def close(self) -> None:
        """Does not wait for one who waits for the broker: that one lets go when it notices."""
        self.closed.set()
        if self._in_use.acquire(timeout=_CLOSE_S):
            self._let_go()
            self._in_use.release()
