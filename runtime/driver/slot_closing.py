"""SlotClosing: an attempt that has ended waits a little for the user's functions to be closed.

Otherwise the host would cut them off: Spark ends a cancelled task's process two seconds later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from onceflow.runtime.control.messages import FunctionsClosed, FunctionsOpened, Noticed, ToDriver
from onceflow.runtime.slot.function_closing import CLOSE_S

WAIT_S = CLOSE_S + 1.0
"""How long the driver waits: a slot has given up on a close() that hangs by then, and said so."""


class SlotClosing:
    """What slots say of functions that are open. The control server's thread tells it, the driver's waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: set[int] = set()
        self._notices: list[str] = []

    def hear(self, messages: Sequence[tuple[int, ToDriver]]) -> list[tuple[int, ToDriver]]:
        """Take what is meant for here; returns the rest."""
        rest: list[tuple[int, ToDriver]] = []
        with self._changed:
            for peer, message in messages:
                match message:
                    case FunctionsOpened():
                        self._open.add(peer)
                    case FunctionsClosed():
                        self.on_lost(peer)
                    case Noticed(reason=reason):
                        self._notices.append(reason)
                    case _:
                        rest.append((peer, message))
        return rest

    def on_lost(self, peer: int) -> None:
        """A slot has nothing more to close, or is gone."""
        with self._changed:
            self._open.discard(peer)
            self._changed.notify_all()

    def wait(self, say: Callable[[str], None], timeout_s: float = WAIT_S) -> None:
        """Wait, after the slots were told to end, for those that have something to close, and say what went
        wrong. One that is still at it then is not waited for again."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout_s)
            self._open.clear()
            notices, self._notices = self._notices, []
        for notice in notices:
            say(notice)
