"""The driver waits for close() in the slots, as long as they have something to close, and not for ever."""

from __future__ import annotations

import threading

from onceflow.runtime.control.messages import Drained, FunctionsClosed, FunctionsOpened, Noticed
from onceflow.runtime.driver.slot_closing import SlotClosing


def test_it_waits_for_those_that_have_something_to_close_and_says_what_went_wrong() -> None:
    closing, said = SlotClosing(), list[str]()
    closing.wait(said.append)  # nobody: it does not wait
    opened = [(peer, FunctionsOpened(attempt=1)) for peer in (1, 2, 3)]
    assert closing.hear([*opened, (1, Drained(attempt=1))]) == [(1, Drained(attempt=1))]

    def end() -> None:
        closing.hear([(1, Noticed(attempt=1, reason="it hangs")), (1, FunctionsClosed(attempt=1))])
        closing.on_lost(2)
        closing.hear([(3, FunctionsClosed(attempt=1))])

    ending = threading.Thread(target=end)
    ending.start()
    closing.wait(said.append, timeout_s=60)
    ending.join()
    assert said == ["it hangs"]


def test_one_that_hangs_is_waited_for_once() -> None:
    closing = SlotClosing()
    closing.hear([(1, FunctionsOpened(attempt=1))])
    closing.wait(print, timeout_s=0)
    closing.wait(print, timeout_s=3600)
