"""The end of the user's functions in a slot: close() of each, bounded in time; and what is told of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import FunctionsClosed, FunctionsOpened, Noticed
from onceflow.runtime.errors import Retryable
from onceflow.runtime.functions.lives import FunctionLives
from onceflow.runtime.functions.parameters import Parameters

CLOSE_S = 5.0
"""How long all close() calls of a slot may take together."""


class SlotWord:
    """What a slot says whether or not the driver still hears it. From any thread."""

    def __init__(self, attempt: int, send: Callable[[Message], None], params: Parameters) -> None:
        self._attempt = attempt
        self._send = send
        self._params = params
        self._has_opened = False

    def send(self, message: Message) -> None:
        """Send it; a driver that is gone does not matter."""
        with contextlib.suppress(Retryable):
            self._send(message)

    def noticed(self, reason: str) -> None:
        """Tell what went wrong and ends nothing."""
        self.send(Noticed(attempt=self._attempt, reason=self._params.redact(reason)))

    def functions_opened(self) -> None:
        """Something will have to be closed: the driver waits for it at the end of the attempt."""
        self._has_opened = True
        self.send(FunctionsOpened(attempt=self._attempt))

    def functions_closed(self) -> None:
        """Nothing is open any more."""
        if self._has_opened:
            self.send(FunctionsClosed(attempt=self._attempt))


def close_functions(
    lives: FunctionLives,
    say: Callable[[str], None],
    end_process: Callable[[], None] | None,
    close_s: float = CLOSE_S,
) -> None:
    """Close what is open, on this thread, on which it was opened: some clients allow no other.

    After `close_s` whose close() hangs is said, and the process ended; without `end_process` the thread is
    left behind, which nothing can end. Called last of all: the failure of the slot, if there was one, has
    been told, and output and state are in order.
    """
    if not lives.has_to_close:
        return
    is_done = threading.Event()

    def watch() -> None:
        if not is_done.wait(close_s):
            end = "its thread is left behind" if end_process is None else "its process is ended"
            say(f"{lives.closing} has not come back within {close_s:g} s at the end of an attempt: {end}")
            if end_process is not None:
                end_process()

    threading.Thread(target=watch, name="onceflow-closing", daemon=True).start()
    try:
        lives.close()
    finally:
        is_done.set()
