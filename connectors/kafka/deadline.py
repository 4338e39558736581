"""A limit for calls into librdkafka that may never return.

`send_offsets_to_transaction(timeout)` waits for ever, whatever its timeout, if the group's coordinator
is killed while the request is on its way and comes back later (librdkafka 2.16: seen with a broker
killed and restarted inside a transaction; the reply to the caller is never sent). Other transactional
calls wait for the same internal queue. So each runs on a thread of its own with a deadline; one that is
overdue is left behind with its producer, which the next producer's initialisation fences.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


class OverdueError(TimeoutError):
    """The call has not returned, and may never: what it did is unknown. Use the handle no more."""


def call_with_deadline(call: Callable[[], Result], timeout_s: float, name: str) -> Result:
    """The call's result or exception. Raises OverdueError after timeout_s; the call goes on, unheard."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        return future.result(timeout_s)
    except TimeoutError:
        if future.done():
            raise  # the call's own
        raise OverdueError(f"{name} has not returned within {timeout_s:.0f} s") from None
